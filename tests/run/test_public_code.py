"""Modules as in public code of the field mean the same on both clocks, or are refused."""

import pytest
import torch

from paceline.cluster.supervisor import ProcessFailure
from paceline.errors import SettingError
from paceline.run.open_data import open_data
from paceline.run.placed_data import reading_of
from tests.run.own import OWN_TRAINING
from tests.run.public_modules import OwnData, SkippingOften
from tests.tiny import CLOCKS, point_of, run_tiny, tiny_point

HERE = "tests.run.public_modules"


def point(model, clock="virtual", scheme="sync_allreduce", data="OwnData", **settings):
    exact = {**OWN_TRAINING, "training__lr": 0.1, "training__precision": "64-true"}
    return tiny_point(
        scheme,
        2,
        4,
        data={"_target_": f"{HERE}.{data}", "folder": None},
        model={"_target_": f"{HERE}.{model}", "lr": 0.1, "shards": 1, "split": "auto"},
        **{**exact, "measurement__evaluations": 6, **CLOCKS[clock], **settings},
    )


def curve(folder, *arguments, **settings):
    folder.mkdir()
    reports, _ = run_tiny(point(*arguments, **settings), folder)
    scores = [score for each in reports.training for score in each.scores]
    return [each.loss for each in sorted(scores, key=lambda score: score.samples)]


EQUAL = ["Byol"]

_EQUAL_TOO = """
    OwnByEpoch Replaced Normalised Guarding Centred MoCo Ema LateEma CentredInPlace Temperature
    Masked FrozenDecay FrozenNorm Parametrised Groups Chained ByItsLoader RateByStep RateByEpoch
    Logging Penalised OwnTeacher OwnCycle OwnWarmup AllWaysReturn Sharing SkippingNan Validating
    Net:Softened WithMask WithAuxiliaryHead BegunAsStudent"""

EQUAL_TOO = _EQUAL_TOO.split()


@pytest.mark.parametrize(
    "case", [*EQUAL, *(pytest.param(each, marks=pytest.mark.slow) for each in EQUAL_TOO)]
)
def test_it_means_the_same_on_both_clocks(case, tmp_path):
    model, _, data = case.partition(":")
    decay = {"FrozenDecay": 0.1, "Groups": 0.1}.get(model, 0)
    settings = {"data": data or "OwnData", "training__weight_decay": decay}
    settings["training__milestones"] = []
    real, virtual = (curve(tmp_path / clock, model, clock, **settings) for clock in CLOCKS)
    assert len(set(real)) >= 5  # the teacher of LateEma waits
    assert virtual == pytest.approx(real, rel=1e-9)


# What its steps have that a plain Trainer's have not, of a name that rounding decides.
DIFFERS = "is not that of plain Lightning in step [01] of a worker"
MOVES = "its trained weights change by something else than steps of its optimizer"

REFUSED = {
    "Unfreezing": "(begins or ends to train|optimizer received) weights",
    "Stopping": "sets trainer.should_stop",
    "Leaving": "(returned -1|the step of the one before had ended)",
    "Seeding": "seeds the generator of torch",
    "CountingWorkers": "calls torch.distributed.get_world_size",
    "CountingWorkersLate": "calls torch.distributed.get_world_size",
    "Bank": DIFFERS,
    "BankOfFixedLength": DIFFERS,
    "Drawing": DIFFERS,
    "FirstNone": DIFFERS,
    "ByMetric": DIFFERS,
    "OfClass": DIFFERS,
    "Reducing": "trainer.strategy has no meaning in a run",
    "ByStrategy": "trainer.strategy has no meaning in a run",
    "RateByValidation": "the rate, or another option of its optimizer, changes by its validation",
    "LossByValidation": "shares changes by its validation",
    "PlateauByHand": "configure_optimizers does not return its scheduler",
    "LeavingTraces": "in step 0 of a worker",
    "OfFirstRank": DIFFERS,
    "Accumulating": "sets trainer.accumulate_grad_batches",
    "Clipping": "hooks make another gradient of line.0.weight of the mean over workers",
    "OwnClipping": DIFFERS,
    "ClippingByHook": DIFFERS,
    "ClampingInBatchEnd": MOVES,
    "ClampingBeforeStep": DIFFERS,
    "ClampingWhereItClips": DIFFERS,
    "ClampingInItsStep": MOVES,
    "NormalisingBeforeZeroing": MOVES,
    "OwnWithLossOfTeacher": MOVES,
    "AveragingAtTheEndOfEpochs": r"teacher\.0\.weight changes after the last step",
    "SkippingAlways": "training_step returns None, which skips a step",
    "WarmupAfterStep": "the rate, or another option of its optimizer, is not that of plain",
    "SteppingItself": "steps its StepLR",
    "ShortCycle": "its OneCycleLR fails before the end of a run of 36 steps in 3 epochs: Tried",
    "Plateau": "needs a validation metric",
    "RateByPartOfEpoch": "trainer.num_training_batches has no meaning in a run: in an epoch",
    "SwappingAtTheEnd": r"line\.0\.weight changes after the last step",
    "LateBuffer": "it adds weights after setup and configure_model, or buffers",
    "ByEpoch": "its forward depends on the epoch",
    "OwnCounting": DIFFERS,
    "SteppingEverySecondBatch": "its optimizer takes no step in some batch",
    "SharpnessAware": DIFFERS,
    "DrawingItself": r"DrawingItself\.training_step draws its batches itself",
    "Pruned": "a buffer of bools changes between its steps",
    "Probabilities": "its rows add up to 1 like those of softmax",
    "KeepingItsActivation": "a run could not go on from its checkpoint",
    "UsingAllCores": "it changes torch's number of threads from 1 to 3: set cluster.threads",
    "InDoublePrecision": r"default dtype from torch\.float32 to torch\.float64: set training",
    "InItsFolder": "it changes the working directory",
    "WithoutOptimizer": "WithoutOptimizer.configure_optimizers returns no optimizer",
    "HeadOutsideOfForward": r"head\.bias is trained, and has no part in what forward returns",
    "ValidatingByItsHead": "its validation_step says val/acc",
    "PreparingInSteps": "its validation_step gives forward other values than the images",
    "OwnFailingLate": "fails in a rehearsal of a few steps: KeyError: 'of_validation'",
}

ON_REAL_WORKERS = [
    "Unfreezing",
    "Stopping",
    "Leaving",
    "Seeding",
    "SteppingItself",
    "RateByPartOfEpoch",
    "PlateauByHand",
    "LeavingTraces",
    "Accumulating",
    "ShortCycle",
    "SkippingAlways",
    "SteppingEverySecondBatch",
]


@pytest.mark.parametrize("first", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_what_cannot_mean_the_same_is_refused_before_training(first, tmp_path):
    """The first module of each reason, and the others."""
    firsts = {said: model for model, said in reversed(REFUSED.items())}
    for model, said in REFUSED.items():
        if (firsts[said] == model) != first:
            continue
        seconds = 1000 if model == "KeepingItsActivation" else None
        with pytest.raises(SettingError, match=rf"^model: .*{said}"):
            run_tiny(point(model, training__checkpoint_seconds=seconds), tmp_path)
        assert not (tmp_path / "weights.pt").exists()
        assert torch.get_default_dtype() == torch.float32


@pytest.mark.slow
@pytest.mark.parametrize("model", ON_REAL_WORKERS)
def test_real_workers_refuse_it_too(model, tmp_path):
    with pytest.raises(SettingError, match=rf"^model: .*{REFUSED[model]}"):
        run_tiny(point(model, "wall"), tmp_path)


@pytest.mark.slow
def test_real_workers_have_a_module_each_and_their_gradients_are_averaged_after_hooks(tmp_path):
    run_tiny(point("Bank", "wall", "sync_parameter_server"), tmp_path)
    with pytest.raises(SettingError, match=rf"^model: .*{REFUSED['Clipping']}"):
        run_tiny(point("Clipping", "wall", "sync_parameter_server"), tmp_path)


@pytest.mark.slow
def test_a_gradient_in_two_passes_is_their_sum_or_refused_where_ddp_averages_the_first(tmp_path):
    one, two = (curve(tmp_path / model, model) for model in ("Net", "InTwoPasses"))
    assert two == pytest.approx(one, rel=1e-9)
    with pytest.raises(SettingError, match=r"^model: its backward takes several passes"):
        run_tiny(point("InTwoPasses", "wall"), tmp_path)


@pytest.mark.parametrize("clock", ["virtual", pytest.param("wall", marks=pytest.mark.slow)])
def test_what_comes_in_the_middle_is_named_when_it_happens(clock, tmp_path):
    for model, said in (
        ("UnfreezingInTheMiddle", REFUSED["Unfreezing"]),
        ("LeavingLater", REFUSED["Leaving"]),
        ("SkippingByFunction", "training_step returned None, which skips a step"),
    ):
        with pytest.raises((SettingError, ProcessFailure), match=said):
            run_tiny(point(model, clock), tmp_path)


def test_a_teacher_that_changes_in_the_middle_only_keeps_the_training(tmp_path):
    with pytest.raises(ProcessFailure, match=r"teacher\.0\.weight changed, which no opti"):
        run_tiny(point("CopyingOnce"), tmp_path)
    weights = torch.load(tmp_path / "weights.pt")
    assert not torch.equal(weights["line.0.weight"], weights["teacher.0.weight"])


@pytest.mark.slow
def test_a_module_that_seeds_itself_does_not_make_workers_alike(tmp_path):
    run_tiny(point("SeededAlike", "wall"), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["OwnFailingLate", "OwnByEpoch"])
def test_split_workers_are_rehearsed(model, tmp_path):
    said = "KeyError: 'of_validation'" if model == "OwnFailingLate" else "outside of the network"
    with pytest.raises(SettingError, match=said):
        run_tiny(point(model, "wall", model__shards=2), tmp_path)


def test_networks_of_anybody_s_are_completed_or_refused(tmp_path):
    def config(network):
        named = {"model__network": {"_target_": f"{HERE}.{network}"}, "training__epochs": 1}
        return tiny_point("sync_allreduce", 2, 4, **named, **CLOCKS["virtual"])

    reports, _ = run_tiny(config("lazy_network"), tmp_path)
    assert [each.num_parameters for each in reports.training] == [16 * 5 + 5 + 5 * 3 + 3]
    for network, said in (
        ("synchronised_network", "SyncBatchNorm needs workers"),
        ("network_of_size", "calls torch.distributed.get_world_size"),
        ("RampedNetwork", DIFFERS),
    ):
        with pytest.raises(SettingError, match=rf"^model: .*{said}"):
            run_tiny(config(network), tmp_path)


@pytest.mark.parametrize("scheme", ["async_parameter_server", "local_sgd"])
def test_a_rate_of_each_step_is_that_of_all_workers(scheme, tmp_path):
    for model in ("Chained", "RateByStep", "ByItsLoader"):
        run_tiny(point(model, scheme=scheme, training__milestones=[]), tmp_path)


def test_a_user_is_told_of_equal_seeds_and_of_a_module_that_is_too_slow(tmp_path, monkeypatch):
    def cautions(model):
        (report,) = run_tiny(point(model, training__epochs=1), tmp_path)[0].training
        return report.cautions

    assert [len(cautions(model)) for model in ("Net", "SeedingItself")] == [0, 1]
    monkeypatch.setattr("paceline.run.compared_steps._PATIENCE", 0.0)
    assert [len(cautions(model)) for model in ("Net", "SeedingItself", "Bank")] == [1, 2, 1]


def test_a_run_leaves_the_settings_of_its_process_to_the_next(tmp_path):
    """Points on the virtual clock run in one process one after the other."""
    run_tiny(point("LeavingGradientsOff"), tmp_path)
    assert torch.is_grad_enabled()
    with pytest.raises(SettingError, match=r"^data: it changes torch's default dtype"):
        run_tiny(point("Net", data="SplitInFloat64"), tmp_path)
    assert torch.get_default_dtype() == torch.float32


def test_a_module_that_diverges_in_its_rehearsal_is_a_result(tmp_path):
    settings = point("Penalised", training__lr=1e300)
    settings["model"]["lr"] = 1e300
    with pytest.raises(FileNotFoundError, match=r"weights\.pt"):  # which it has not saved
        run_tiny(settings, tmp_path)
    assert (tmp_path / "progress.csv").exists()


def test_a_rate_that_hooks_set_is_not_called_constant(tmp_path):
    for model, scheduler, rate in (
        ("RateByStep", "own hooks", 0.1),
        ("OwnWarmup", "own hooks", 0.1),
        ("Chained", "SequentialLR, StepLR", 0.1),
        ("Net", None, 0.1),
    ):
        reports, _ = run_tiny(point(model, training__milestones=[]), tmp_path)
        (found,) = reports.training
        assert (found.optimizer, found.scheduler) == ("SGD", scheduler), model
        assert found.lr == pytest.approx(rate), model


def test_an_optimizer_without_hooks_takes_its_steps(tmp_path):
    found = []
    for model in ("Net", "SteppingAround"):
        settings = point(model, "wall", training__epochs=1) | {"workers": 1, "batch_size": 8}
        found.append(run_tiny(settings, tmp_path)[1])
    for name, weight in found[0].items():
        torch.testing.assert_close(found[1][name], weight, rtol=1e-9, atol=0)


@pytest.mark.slow
def test_one_worker_skips_a_step_as_any_trainer_does(tmp_path):
    """Neither momentum nor decay moves weights in a step without a loss, and the mean loss is that
    of the other steps.
    """
    settings = point("SkippingOften", "wall", training__momentum=0.9, training__weight_decay=0.1)
    settings |= {"workers": 1, "batch_size": 8}
    reports, weights = run_tiny(settings, tmp_path)
    data = open_data(OwnData(None), reading_of(point_of(settings)))
    torch.manual_seed(settings["seed"])
    module = SkippingOften(lr=0.1).double()
    optimizer = module.configure_optimizers()
    losses = []
    for n in range(18):
        if n % 6 % 3 == 1:
            continue
        points, labels = data.batch(0, n)
        loss = module.training_step((points.double(), labels), batch_idx=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    for name, weight in module.state_dict().items():
        torch.testing.assert_close(weights[name], weight, rtol=1e-9, atol=0)
    sums, counts = zip(*reports.training[0].losses, strict=True)
    assert sum(counts) == len(losses) == 12
    assert sum(sums) == pytest.approx(sum(losses), rel=1e-9)
