"""Laws of the engines of the virtual clock: each ends where one by one does."""

import contextlib

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from paceline.clock.virtual import virtual_strategy
from paceline.clock.virtual.dropout_streams import DropoutStreams
from paceline.clock.virtual.virtual_worker import Buffer
from paceline.clock.virtual.wave_engines import ENGINES, Trained
from paceline.errors import SettingError
from paceline.timing.profile import ClusterProfile, Link
from tests.clock.virtual.test_resume import FIRST_OF_EACH, Killed, WritesAt, assert_same
from tests.clock.virtual.trained import STRUCTURES, module_of, train, weights_of, workers_for

HAS_GPU = torch.cuda.is_available()
DEVICES = ["cpu", *([pytest.param("cuda:0", marks=pytest.mark.gpu)] if HAS_GPU else [])]
NODES = ClusterProfile(Link(0.05, 20_000), Link(0.02, 50_000), 2, 0.02, 100_000)
every_engine = pytest.mark.parametrize("engine", ENGINES)
on_every_device = pytest.mark.parametrize("device", DEVICES)


def run_with(engine, scheme, device="cpu", **options):
    settings = {
        "batch_norm": True,
        "dropout": 0.2,
        "snapshot_samples": [40, 100],
        "profile": NODES,
        "length": 200,
        **options,
    }
    return train(scheme(), workers_for(scheme(), 5), 36, engine=engine, device=device, **settings)


def times_of(strategy):
    clock = strategy.clock
    snapshots = [(each.samples, each.updates, each.seconds) for each in clock.holder.snapshots]
    ends = [(each.step_ends, each.step_numbers, each.bytes_sent) for each in clock.workers]
    return clock.kernel.now, snapshots, ends


@on_every_device
@pytest.mark.parametrize("scheme", STRUCTURES.values(), ids=STRUCTURES)
def test_weights_are_those_of_one_by_one(scheme, device):
    """So are the times, BatchNorm's statistics and its number of batches."""
    other, expected = run_with("one_by_one", scheme, device)
    for engine in ENGINES:
        strategy, module = run_with(engine, scheme, device)
        assert strategy.report(None, 0).engine == engine
        assert_close(weights_of(module), weights_of(expected), rtol=1e-10, atol=1e-10)
        assert times_of(strategy) == times_of(other)
        vectors = [
            [(each.weights, each.statistics) for each in run.clock.holder.snapshots]
            for run in (strategy, other)
        ]
        assert_close(*vectors, rtol=1e-10, atol=1e-10)


@on_every_device
@every_engine
@pytest.mark.parametrize(
    "clip",
    [{"gradient_clip_val": 0.3}, {"gradient_clip_val": 0.05, "gradient_clip_algorithm": "value"}],
    ids=["norm", "value"],
)
def test_gradients_are_clipped_as_one_by_one(engine, clip, device):
    scheme = STRUCTURES["local_sgd"]
    found, expected = (
        weights_of(run_with(each, scheme, device, of_trainer=clip)[1])
        for each in (engine, "one_by_one")
    )
    assert_close(found, expected, rtol=1e-10, atol=1e-10)
    unclipped = weights_of(run_with(engine, scheme, device)[1])
    assert not torch.allclose(found["1.weight"], unclipped["1.weight"], rtol=1e-3)


def apart(ours, theirs):
    """The distance of two sets of weights, as a share of the second's length."""
    pairs = [(ours[name].double(), each.double()) for name, each in theirs.items()]
    distance = sum((one - other).square().sum() for one, other in pairs)
    return float((distance / sum(other.square().sum() for _, other in pairs)).sqrt())


@on_every_device
@every_engine
def test_precision_is_as_one_by_one(engine, device):
    """Factors of 8 bits are rounded in every engine, and in none without being asked."""
    found, expected = (
        {
            precision: weights_of(
                run_with(each, STRUCTURES["sync_allreduce"], device, precision=precision)[1]
            )
            for precision in ("32-true", "bf16-mixed", "64-true")
        }
        for each in (engine, "one_by_one")
    )
    for weights in (found, expected):
        assert apart(weights["32-true"], expected["64-true"]) < 1e-4
        assert 3e-4 < apart(weights["bf16-mixed"], expected["64-true"]) < 0.1


def convolutions():
    """Of several pixels and of one, with a stride and without."""
    torch.manual_seed(5)
    images = [nn.Linear(3, 64), nn.Unflatten(1, (4, 4, 4)), nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8)]
    more = [nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 1, 1), nn.BatchNorm2d(8)]
    layers = [*images, *more, nn.Flatten(), nn.Linear(8, 3)]
    return [layer.double() for layer in layers]


@on_every_device
@every_engine
@pytest.mark.parametrize("scheme", ["sync_allreduce", "async_parameter_server"])
def test_convolutions_are_those_of_one_by_one(engine, scheme, device):
    found, expected = (
        weights_of(run_with(each, STRUCTURES[scheme], device, layers=convolutions())[1])
        for each in (engine, "one_by_one")
    )
    assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs a GPU")
@every_engine
def test_tf32_is_as_one_by_one(engine, monkeypatch):
    """Factors of convolutions have 11 bits where torch is told so, but in products of matrices."""

    def run(engine, precision):
        settings = {"layers": convolutions(), "precision": precision}
        return weights_of(run_with(engine, STRUCTURES["sync_allreduce"], "cuda:0", **settings)[1])

    exact = run("one_by_one", "64-true")
    for allowed, least, most in ((False, 0, 1e-3), (True, 1e-5, 0.1)):
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", allowed)
        assert least < apart(run("one_by_one", "32-true"), exact) < most
        assert apart(run(engine, "32-true"), exact) < most


@on_every_device
@every_engine
@pytest.mark.parametrize("scheme", ["sync_allreduce", "local_sgd", "async_parameter_server"])
def test_the_same_seed_gives_the_same_bits(engine, scheme, device):
    runs = [weights_of(run_with(engine, STRUCTURES[scheme], device)[1]) for _ in range(2)]
    assert_close(*runs, rtol=0, atol=0)


@on_every_device
@pytest.mark.parametrize("scheme", FIRST_OF_EACH.values(), ids=FIRST_OF_EACH)
def test_a_resumed_run_is_the_uninterrupted_one(scheme, device, tmp_path, monkeypatch):
    """Gradients that were computed before they were due are in the checkpoint."""
    monkeypatch.setattr(virtual_strategy, "BATCH_STEPS", 1)

    def run(**more):
        return run_with("vmap", scheme, device, sample_decay=0.99, **more)

    whole = run(callbacks=[WritesAt(3, tmp_path / "a.ckpt")])
    (state,) = torch.load(tmp_path / "a.ckpt")["optimizer_states"]
    assert state["engine"] == "vmap"
    again = WritesAt(5, tmp_path / "b.ckpt", killed=True)
    with pytest.raises(Killed):
        run(ckpt_path=tmp_path / "a.ckpt", callbacks=[again])
    assert_same(whole, run(ckpt_path=tmp_path / "b.ckpt"))


def test_a_checkpoint_of_another_engine_is_refused(tmp_path):
    path, scheme = tmp_path / "a.ckpt", STRUCTURES["sync_allreduce"]
    run_with("one_by_one", scheme, callbacks=[WritesAt(5, path)])
    with pytest.raises(SettingError, match=r"cluster\.engine.*written with one_by_one"):
        run_with("vmap", scheme, ckpt_path=path)


@every_engine
def test_a_module_that_no_engine_can_compute_is_named(engine):
    """AlphaDropout draws from one stream, in the order of virtual time."""
    scheme = STRUCTURES["sync_allreduce"]
    message = (
        rf"cluster\.engine.*{engine} cannot compute Classifier: its network\.\d \(AlphaDropout\)"
    )
    with pytest.raises(SettingError, match=message):
        run_with(engine, scheme, layers=[nn.AlphaDropout(0.2)])


class Reads(nn.Module):
    """Chooses by a value, which no transformed function can."""

    def forward(self, images):
        return images if images.sum().item() > 0 else -images


def test_a_module_that_vmap_cannot_transform_is_named():
    with pytest.raises(SettingError, match=r"cluster\.engine.*vmap cannot compute Classifier"):
        run_with("vmap", STRUCTURES["sync_allreduce"], layers=[Reads()])


@every_engine
def test_a_module_that_declares_nothing_is_named(engine, monkeypatch):
    monkeypatch.setattr("paceline.model.classifier.Classifier.pure_training_step", False)
    with pytest.raises(SettingError, match="does not declare pure_training_step"):
        run_with(engine, STRUCTURES["sync_allreduce"])


def test_auto_is_one_by_one_on_the_cpu():
    strategy, _ = run_with("auto", STRUCTURES["sync_allreduce"], dropout=0.2)
    assert strategy.engine == "one_by_one"


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs a GPU")
def test_auto_chooses_vmap_on_a_gpu():
    strategy, _ = run_with("auto", STRUCTURES["sync_allreduce"], "cuda:0")
    assert strategy.engine == "vmap"


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs a GPU")
def test_auto_falls_back_by_name_on_a_gpu(capsys):
    strategy, _ = run_with(
        "auto", STRUCTURES["sync_allreduce"], "cuda:0", layers=[nn.AlphaDropout(0.2)]
    )
    assert strategy.engine == "one_by_one"
    assert "one by one, since vmap cannot compute Classifier" in capsys.readouterr().err


def test_backward_adds_to_the_vector_that_is_given():
    """Else gradients would exist twice."""
    module = module_of()
    weights = [*module.parameters()]
    trained = Trained(
        module,
        weights,
        [],
        [],
        dropout=DropoutStreams(module, 0, torch.device("cpu")),
        precision=contextlib.nullcontext,
        clip=None,
        clip_by_value=False,
    )
    gradient = Buffer(torch.ones(103, dtype=torch.float64))
    trained.begin_gradient(gradient)
    assert [weight.grad.data_ptr() for weight in weights] == [
        view.data_ptr() for view in gradient.views(weights)
    ]
    assert not gradient.vector.any()
    trained.end_gradient(gradient)
    assert [weight.grad for weight in weights] == [None] * len(weights)
