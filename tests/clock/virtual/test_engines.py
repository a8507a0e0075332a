"""Laws of the engines of the virtual clock: each ends where one by one does."""

import contextlib

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.testing import assert_close

from paceline.clock.virtual import stacked_convolution, virtual_strategy
from paceline.clock.virtual.dropout_streams import DropoutStreams
from paceline.clock.virtual.stacked_convolution import ByMatrices
from paceline.clock.virtual.wave_engines import ENGINES, Trained, views_of
from paceline.errors import SettingError
from paceline.timing.profile import ClusterProfile, Link
from tests.clock.virtual.test_resume import FIRST_OF_EACH, Killed, WritesAt, assert_same
from tests.clock.virtual.trained import STRUCTURES, module_of, train, weights_of, workers_for

HAS_GPU = torch.cuda.is_available()
DEVICES = ["cpu", *([pytest.param("cuda:0", marks=pytest.mark.gpu)] if HAS_GPU else [])]
NODES = ClusterProfile(Link(0.05, 20_000), Link(0.02, 50_000), 2, 0.02, 100_000)
every_engine = pytest.mark.parametrize("engine", ENGINES)
on_a_gpu = pytest.mark.gpu if HAS_GPU else pytest.mark.skip(reason="needs a GPU")
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
    simulation, kept = strategy.simulation, strategy.execution.snapshots
    snapshots = [(each.samples, each.updates, each.seconds) for each in kept]
    ends = [(each.step_ends, each.step_numbers, each.bytes_sent) for each in simulation.workers]
    return simulation.kernel.now, snapshots, ends


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
            [(each.weights, each.statistics) for each in run.execution.snapshots]
            for run in (strategy, other)
        ]
        assert_close(*vectors, rtol=1e-10, atol=1e-10)


def convolutions():
    """Of several pixels and of one, with a stride and without."""
    torch.manual_seed(5)
    images = [nn.Linear(3, 64), nn.Unflatten(1, (4, 4, 4)), nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8)]
    more = [nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 1, 1), nn.BatchNorm2d(8)]
    layers = [*images, *more, nn.Flatten(), nn.Linear(8, 3)]
    return [layer.double() for layer in layers]


def both(engine, scheme, device="cpu", layers=list, **options):
    """The weights of this engine, and of one by one."""
    runs = (
        run_with(each, STRUCTURES[scheme], device, layers=layers(), **options)
        for each in (engine, "one_by_one")
    )
    return [weights_of(module) for _, module in runs]


CLIPS = [
    {"gradient_clip_val": 0.3},
    {"gradient_clip_val": 0.05, "gradient_clip_algorithm": "value"},
]


@on_every_device
@every_engine
@pytest.mark.parametrize("clip", CLIPS, ids=["norm", "value"])
def test_gradients_are_clipped_as_one_by_one(engine, clip, device):
    found, expected = both(engine, "local_sgd", device, of_trainer=clip)
    assert_close(found, expected, rtol=1e-10, atol=1e-10)
    unclipped, again = (both(engine, "local_sgd", device)[0] for _ in range(2))
    assert not torch.allclose(found["1.weight"], unclipped["1.weight"], rtol=1e-3)
    assert_close(unclipped, again, rtol=0, atol=0)  # the same seed gives the same bits


@on_every_device
@every_engine
@pytest.mark.parametrize("scheme", ["sync_allreduce", "async_parameter_server"])
def test_convolutions_are_those_of_one_by_one(engine, scheme, device):
    found, expected = both(engine, scheme, device, layers=convolutions)
    assert_close(found, expected, rtol=1e-9, atol=1e-9)


def apart(ours, theirs):
    """The distance of two sets of weights, as a share of the second's length."""
    pairs = [(ours[name].double(), each.double()) for name, each in theirs.items()]
    distance = sum((one - other).square().sum() for one, other in pairs)
    return float((distance / sum(other.square().sum() for _, other in pairs)).sqrt())


@on_every_device
@every_engine
def test_precision_is_as_one_by_one(engine, device):
    """Factors of 8 bits are rounded in every engine, and in none without being asked."""
    _, exact = both(engine, "sync_allreduce", device)
    for precision, least, most in (("32-true", 0, 1e-4), ("bf16-mixed", 3e-4, 0.1)):
        for weights in both(engine, "sync_allreduce", device, precision=precision):
            assert least < apart(weights, exact) < most


@on_a_gpu
@every_engine
def test_tf32_is_as_one_by_one(engine, monkeypatch):
    """Factors of convolutions have 11 bits where torch is told so, but in products of matrices."""

    def run(precision):
        settings = {"layers": convolutions, "precision": precision}
        return both(engine, "sync_allreduce", "cuda:0", **settings)

    _, exact = run("64-true")
    for allowed, least, most in ((False, 0, 1e-3), (True, 1e-5, 0.1)):
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", allowed)
        ours, theirs = run("32-true")
        assert least < apart(theirs, exact) < most
        assert apart(ours, exact) < most


@on_every_device
@pytest.mark.parametrize("scheme", FIRST_OF_EACH.values(), ids=FIRST_OF_EACH)
def test_a_resumed_run_is_the_uninterrupted_one(scheme, device, tmp_path, monkeypatch):
    """Gradients that were computed before they were due are in the checkpoint."""
    monkeypatch.setattr(virtual_strategy, "BATCH_STEPS", {"cpu": 1, "cuda": 1})

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


class Reads(nn.Module):
    """Chooses by a value, which no transformed function can."""

    def forward(self, images):
        return images if images.sum().item() > 0 else -images


class Replaces(nn.Module):
    """Puts another tensor in the place of its buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3, dtype=torch.float64))

    def forward(self, images):
        self.mean = 0.9 * self.mean + 0.1 * images.detach().mean(0)
        return images - self.mean


@on_every_device
def test_a_buffer_that_is_replaced_is_each_workers_own(device):
    found, expected = both("graph", "async_parameter_server", device, layers=lambda: [Replaces()])
    assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("engine", "layer", "declared", "said"),
    [
        # AlphaDropout draws from one stream, in the order of virtual time
        *((each, nn.AlphaDropout(0.2), True, r".*: its network\.\d \(Alpha") for each in ENGINES),
        *((each, nn.Identity(), False, ".*declare pure_training_step") for each in ENGINES),
        ("vmap", Reads(), True, ""),
        ("vmap", Replaces(), True, ""),
    ],
)
def test_a_module_that_an_engine_cannot_compute_is_named(
    engine, layer, declared, said, monkeypatch
):
    monkeypatch.setattr("paceline.model.classifier.Classifier.pure_training_step", declared)
    message = rf"cluster\.engine.*{engine} cannot compute Classifier{said}"
    with pytest.raises(SettingError, match=message):
        run_with(engine, STRUCTURES["sync_allreduce"], layers=[layer])


@pytest.mark.parametrize(
    ("device", "layers", "engine"),
    [
        ("cpu", [], "graph"),
        ("cpu", [nn.AlphaDropout(0.2)], "one_by_one"),
        pytest.param("cuda:0", [], "vmap", marks=on_a_gpu),
        pytest.param("cuda:0", [nn.AlphaDropout(0.2)], "one_by_one", marks=on_a_gpu),
    ],
)
def test_auto_is_the_fastest_that_can_be(device, layers, engine, capsys):
    strategy, _ = run_with("auto", STRUCTURES["sync_allreduce"], device, layers=layers)
    assert strategy.engine == engine
    told = "one by one, since vmap cannot compute Classifier" in capsys.readouterr().err
    assert told == bool(layers and device != "cpu")


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
    gradient = torch.ones(103, dtype=torch.float64)
    trained.begin_gradient(gradient)
    assert [weight.grad.data_ptr() for weight in weights] == [
        view.data_ptr() for view in views_of(gradient, weights)
    ]
    assert not gradient.any()
    trained.end_gradient()
    assert [weight.grad for weight in weights] == [None] * len(weights)


WORKERS, IMAGES = 3, 5
LAYERS = {
    "stride": (nn.Conv2d(3, 5, 3, 2, 1), (3, 9, 8)),
    "one pixel": (nn.Conv2d(3, 5, 1, 2, bias=False), (3, 9, 8)),
    "oblong": (nn.Conv2d(4, 6, (3, 2), (1, 2), (1, 0)), (4, 7, 8)),
    "large": (nn.Conv2d(3, 5, 7, 2, 3), (3, 14, 14)),
    "groups": (nn.Conv2d(4, 4, 3, groups=2), (4, 7, 7)),
    "dilated": (nn.Conv2d(4, 4, 3, dilation=2), (4, 7, 7)),
    "same": (nn.Conv2d(4, 4, 3, padding="same"), (4, 7, 7)),
    "reflected": (nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"), (4, 7, 7)),
}


def gradients(layer, weights, images):
    def loss(weights, images):
        return (functional_call(layer, weights, (images,)) ** 3).sum()

    return vmap(grad(loss, argnums=(0, 1)))(weights, images)


@pytest.mark.parametrize(("layer", "shape"), LAYERS.values(), ids=LAYERS)
def test_gradients_are_those_of_grouped_convolutions(layer, shape, monkeypatch):
    monkeypatch.setattr(stacked_convolution, "is_faster", lambda *_: True)
    stream = torch.Generator().manual_seed(1)

    def drawn(*shape):
        return torch.randn(WORKERS, *shape, dtype=torch.float64, generator=stream)

    weights = {name: drawn(*each.shape) for name, each in layer.named_parameters()}
    images = drawn(IMAGES, *shape)
    expected = gradients(layer, weights, images)
    with ByMatrices():
        assert_close(gradients(layer, weights, images), expected, rtol=1e-12, atol=1e-11)


def test_a_convolution_of_half_precision_is_as_under_autocast():
    layer, images = nn.Conv2d(16, 64, 3, 2), torch.randn(WORKERS, IMAGES, 16, 6, 6)
    weights = {name: torch.stack([each] * WORKERS) for name, each in layer.named_parameters()}
    with torch.autocast("cpu", torch.bfloat16):
        expected = gradients(layer, weights, images)
        with ByMatrices():
            found = gradients(layer, weights, images)
    assert found[0]["weight"].dtype == torch.float32
    most = float(expected[1].detach().abs().max())
    assert_close(found, expected, rtol=0.1, atol=0.1 * most)


def test_the_result_never_looks_as_if_channels_were_last():
    """BatchNorm under vmap refuses such images on a GPU."""
    seen = []

    def convolved(weights, images):
        with ByMatrices():
            found = torch.conv2d(images, weights, None, 1, 1)
        seen.append(found.stride())
        return found

    for pixels in (1, 2):
        images = torch.randn(WORKERS, IMAGES, 16, pixels, pixels)
        vmap(convolved)(torch.randn(WORKERS, 8, 16, 3, 3), images)
    assert seen == [(8, 1, 1, 1), (32, 4, 2, 1)]
