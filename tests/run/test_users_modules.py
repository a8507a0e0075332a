"""Modules of users mean the same on both clocks, or are refused before they train."""

import re

import pytest
import torch
from pytorch_lightning import LightningModule

from paceline.cluster.supervisor import ProcessFailure
from paceline.errors import SettingError
from paceline.model.classifier import Classifier
from paceline.run.lightning_contract import HOOKS
from paceline.run.open_data import open_data
from paceline.run.placed_data import reading_of
from paceline.run.users_module import trains_as_ours
from tests.launching import launch
from tests.run.own import OwnData, own_point
from tests.run.users_modules import DIFFERS, LATE, REFUSED, WORKING, SkippingOften
from tests.tiny import CLOCKS, point_of, run_tiny, run_together, tiny_point

HERE = "tests.run.users_modules"


def point(kind, clock="virtual", scheme="sync_allreduce", data="OwnData", model=None, **settings):
    exact = {"training__lr": 0.1, "training__precision": "64-true", "measurement__evaluations": 6}
    named = {"_target_": f"{HERE}.build", "kind": kind, "lr": 0.1} | (model or {})
    data = {"_target_": f"{HERE}.{data}"}
    return own_point(scheme, clock, data, named, **(exact | settings))


def curve(reports):
    scores = [score for each in reports.training for score in each.scores]
    return [each.loss for each in sorted(scores, key=lambda score: score.samples)]


DECAYED = {"training__weight_decay": 0.1}
SETTINGS = {
    "a frozen layer, and decay": DECAYED,
    "tied weights, and groups of weights": DECAYED,
    "labels that are shares of classes": {"data": "Softened"},
}
OTHER_SCHEMES = [  # first the one with a server, which would wait for all runs before it
    ("hooks that change gradients", "sync_parameter_server"),
    ("a queue of the last points", "local_sgd"),
    ("torch's average of weights", "local_sgd"),
]
PAIRS = OTHER_SCHEMES + [(kind, "sync_allreduce") for kind in WORKING]
FAST = PAIRS[2:6]


@pytest.mark.parametrize(
    "pairs",
    [FAST, pytest.param([each for each in PAIRS if each not in FAST], marks=pytest.mark.slow)],
)
def test_it_means_the_same_on_both_clocks(pairs, tmp_path):
    def points(clock):
        constant = {"training__milestones": []}
        return [point(k, clock, s, **constant, **SETTINGS.get(k, {})) for k, s in pairs]

    of_clocks = []
    for clock in CLOCKS:
        (tmp_path / clock).mkdir()
        of_clocks.append(run_together(points(clock), tmp_path / clock))
    for pair, (real, weights), (virtual, modelled) in zip(pairs, *of_clocks, strict=True):
        assert len(set(curve(real))) >= 5, pair  # a teacher that is late waits
        assert curve(virtual) == pytest.approx(curve(real), rel=1e-9), pair
        for name, weight in weights.items():
            torch.testing.assert_close(weight, modelled[name], rtol=1e-9, atol=1e-12, msg=str(pair))


def test_what_cannot_mean_the_same_is_refused_before_training(tmp_path):
    for kind, (said, _) in REFUSED.items():
        seconds = 1000 if kind == "a function in a checkpoint" else None
        with pytest.raises(SettingError, match=rf"^model: .*{said}"):
            run_tiny(point(kind, training__checkpoint_seconds=seconds), tmp_path)
        assert not (tmp_path / "progress.csv").exists()


ON_REAL_WORKERS = [
    *("a layer that begins to train in the last epoch", "an end of training"),
    *("an end of the epoch", "a seed for all workers", "a scheduler that it steps"),
    *("the length of an epoch, within it", "a scheduler that it keeps", "no loss"),
    *("a scheduler that ends before the run", "a loss by what all its copies have seen"),
    "gradients that it accumulates",
]


@pytest.mark.slow
def test_real_workers_refuse_it_too(tmp_path):
    expected = {kind: REFUSED[kind][0] for kind in ON_REAL_WORKERS}
    expected["a gradient in two passes"] = "its backward takes several passes"  # and DDP the first
    expected["a seed for the first weights"] = None
    arguments = ([point_of(point(kind, "wall")) for kind in expected], tmp_path)
    launched = {"workers": 2, "servers": 0, "log_folder": tmp_path / "log"}
    for found in launch(f"{HERE}:said_of_each", arguments, **launched):
        for (kind, pattern), said in zip(expected.items(), found, strict=True):
            assert (said is None) == (pattern is None), kind
            assert said is None or re.match(f"model: .*{pattern}", said), kind


def test_a_classifier_with_any_hook_is_not_trained_as_plain():
    for hook, use in HOOKS.items():
        of_users = type("Own", (Classifier,), {hook: lambda *_: None})
        module = of_users(torch.nn.Linear(3, 3), torch.optim.SGD)
        assert trains_as_ours(module) == (use in ("not called", "refused")), hook
    assert trains_as_ours(Classifier(torch.nn.Linear(3, 3), torch.optim.SGD))
    assert not trains_as_ours(LightningModule())


@pytest.mark.slow
def test_real_workers_have_a_module_each_and_their_gradients_are_averaged_after_hooks(tmp_path):
    run_tiny(point("a loss by what it has seen", "wall", "sync_parameter_server"), tmp_path)
    limited = "a limit of gradients, larger than those of a worker"
    with pytest.raises(SettingError, match=rf"^model: .*{REFUSED[limited][0]}"):
        run_tiny(point(limited, "wall", "sync_parameter_server"), tmp_path)


def test_a_gradient_in_two_passes_is_their_sum(tmp_path):
    kinds = ("plain", "a gradient in two passes")
    (one, _), (two, _) = run_together([point(kind) for kind in kinds], tmp_path)
    assert curve(two) == pytest.approx(curve(one), rel=1e-9)


@pytest.mark.parametrize("clock", ["virtual", pytest.param("wall", marks=pytest.mark.slow)])
def test_what_comes_in_the_middle_is_named_when_it_happens(clock, tmp_path):
    for kind, (said, _) in LATE.items():
        with pytest.raises((SettingError, ProcessFailure), match=said):
            run_tiny(point(kind, clock), tmp_path)


def test_a_teacher_that_changes_in_the_middle_only_keeps_the_training(tmp_path):
    with pytest.raises(ProcessFailure, match=r"teacher\.0\.weight changed, which no opti"):
        run_tiny(point("a teacher that moves once, in the middle"), tmp_path)
    weights = torch.load(tmp_path / "weights.pt")
    assert not torch.equal(weights["line.0.weight"], weights["teacher.0.weight"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("a question of validation", "KeyError: 'of_validation'"),
        ("a Classifier with hooks", "outside of the network"),
    ],
)
def test_split_workers_are_rehearsed(kind, said, tmp_path):
    with pytest.raises(SettingError, match=said):
        run_tiny(point(kind, "wall", model={"shards": 2}), tmp_path)


def test_networks_of_users_are_completed_or_refused(tmp_path):
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


def test_a_user_is_told_of_equal_seeds_and_of_a_module_that_is_too_slow(tmp_path, monkeypatch):
    def cautions(kind):
        (report,) = run_tiny(point(kind, training__epochs=1), tmp_path)[0].training
        return len(report.cautions)

    alike = "the same weights for every seed"
    assert [cautions(kind) for kind in ("plain", alike)] == [0, 1]
    monkeypatch.setattr("paceline.run.compared_steps._PATIENCE", 0.0)
    kinds = ("plain", alike, "a loss by what it has seen")
    assert [cautions(kind) for kind in kinds] == [1, 2, 1]


def test_a_run_leaves_the_settings_of_its_process_to_the_next(tmp_path):
    """Points on the virtual clock run in one process one after the other."""
    run_tiny(point("no more gradients after training", training__epochs=1), tmp_path)
    assert torch.is_grad_enabled()
    with pytest.raises(SettingError, match=r"^data: it changes torch's default dtype"):
        run_tiny(point("plain", data="SplitInFloat64"), tmp_path)
    assert torch.get_default_dtype() == torch.float32


def test_a_module_that_diverges_in_its_rehearsal_is_a_result(tmp_path):
    settings = point("hooks that change gradients", model={"lr": 1e300}, training__lr=1e300)
    with pytest.raises(FileNotFoundError, match=r"weights\.pt"):  # which it has not saved
        run_tiny(settings, tmp_path)
    assert (tmp_path / "progress.csv").exists()


@pytest.mark.parametrize("scheme", ["sync_allreduce", "async_parameter_server", "local_sgd"])
def test_a_rate_that_hooks_set_is_not_called_constant(scheme, tmp_path):
    for kind, scheduler in (
        ("a rate set in each step", "own hooks"),
        ("schedulers by steps and by epochs", "SequentialLR, StepLR"),
        ("plain", None),
    ):
        reports, _ = run_tiny(point(kind, scheme=scheme, training__milestones=[]), tmp_path)
        (found,) = reports.training
        assert (found.optimizer, found.scheduler) == ("SGD", scheduler), kind
        assert found.lr == pytest.approx(0.1), kind


def alone(kind, **settings):
    return point(kind, "wall", **settings) | {"workers": 1, "batch_size": 8}


def test_an_optimizer_without_hooks_takes_its_steps(tmp_path):
    configs = [alone(kind, training__epochs=1) for kind in ("plain", "an optimizer around another")]
    (_, plain), (_, around) = run_together(configs, tmp_path)
    for name, weight in plain.items():
        torch.testing.assert_close(around[name], weight, rtol=1e-9, atol=0)


@pytest.mark.slow
def test_one_worker_skips_a_step_as_any_trainer_does(tmp_path):
    """Neither momentum nor decay moves weights in a step without a loss, and the mean loss is that
    of the other steps.
    """
    settings = alone("no loss in some batches", training__momentum=0.9, training__weight_decay=0.1)
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
