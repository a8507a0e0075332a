"""Predictions on the command line: the table, the file, and what cannot be predicted."""

import json

import pytest

from paceline import cli
from paceline.command.predict_command import as_json, cells, notes
from paceline.errors import SettingError
from paceline.prediction.predict import at_slowest, predict, sized_workload
from paceline.record.point import Point
from paceline.study.compose import composed, composed_each
from tests.command_line import results, run
from tests.test_command_line import UNLOGGED
from tests.tiny import CONF

ROOT = CONF.parent


def each(*overrides, steps=10):
    return [predict(each.config, steps, each.swept) for each in composed_each(overrides, ROOT)]


def test_a_line_for_every_combination_and_a_column_for_what_differs():
    sizes = ("scheme.collective=ring,tree", "batch_size=32,64")
    found = each("cluster=minotauro", "workload=resnet50", "workers=4", *sizes)
    rows, (note, *_) = [cells(prediction) for prediction in found], notes(found)
    assert [*rows[0]][:7] == [
        *("cluster", "workload", "scheme", "scheme.collective"),
        *("batch_size", "workers", "images/s"),
    ]
    assert [[*row.values()][3:6] for row in rows] == [
        ["ring", "32", "4"],
        ["ring", "64", "4"],
        ["tree", "32", "4"],
        ["tree", "64", "4"],
    ]
    assert note.startswith("predicted: modelled time, nothing trained")


def test_the_file_names_rows_and_kind():
    predictions = each("cluster=titan", "workload=nin", "scheme=async_parameter_server")
    (found,) = json.loads(as_json(predictions))
    assert found["kind"] == "predicted"
    assert found["rows"][:2] == [
        "B/table2-nin/nin/single-gpu-caffe-1gpu-b256-train-time",
        "B/table2-nin/nin/single-gpu-caffe-1gpu-b256-epochs",
    ]
    assert found["rows"][2:] == composed(["cluster=titan"], ROOT).values["cluster"]["fitted_to"]
    assert sum(found["staleness"].values()) == 10


@pytest.mark.parametrize("precision", ["32-true", "64-true"])
def test_messages_have_the_bytes_of_the_run_that_trains(root, precision):
    """Weights and BatchNorm statistics of the small CNN, over a link and by servers slow enough to
    show.
    """
    settings = (
        *("cluster.server_tensor_seconds=0.002", "cluster.server_copy_bandwidth=100000"),
        *("cluster=virtual", "cluster.workers_per_node=1", "cluster.link.bandwidth=40000"),
        *("cluster.step_seconds=0.1", "scheme=async_parameter_server", "workers=4"),
        *(*UNLOGGED, f"training.precision={precision}"),
    )
    code, _, errors = run(root, "train", *settings, "study=bytes")
    assert (code, errors) == (0, [])
    (trained,) = (
        result
        for result in results(root, "bytes")
        if precision in (root / "runs/bytes" / result["key"] / "1/config.yaml").read_text()
    )
    (prediction,) = each(*settings, steps=10)
    assert prediction.run.images_per_second == pytest.approx(
        trained["images_per_second"], rel=0.002
    )


def test_the_command(tmp_path):
    file = tmp_path / "found.json"
    asked = ("predict", "cluster=virtual", "workers=1,2", "--steps", "10", "--json", str(file))
    code, lines, errors = run(ROOT, *asked)
    assert (code, errors) == (0, [])
    assert [entry["workers"] for entry in json.loads(file.read_text())] == [1, 2]
    assert lines[0] == "own, virtual, sync_allreduce, 32 images per worker and step"
    assert [line.split()[:2] for line in lines if line.strip()[:1] == "2"] == [["2", "64.0"]]
    assert any(line.startswith("predicted: modelled time, nothing trained") for line in lines)
    assert any("a step of own as cluster.step_seconds says" in line for line in lines)
    assert lines[-1].startswith("no interval: messages take no time")


YADAN = ("cluster=four_titans", "workload=alexnet", "cluster.step_jitter=0")


def test_shards_have_a_column_and_their_time_by_hand():
    """Yadan 2013: two GPUs, one network; convolutions by images, linear layers by channels."""
    whole, halves = each(*YADAN, "batch_size=256", "model.shards=1,2")
    assert [*cells(halves).items()][3:6] == [
        *(("model.shards", "2"), ("workers", "1"), ("batch_size", "256"))
    ]
    activations = 256 * 4 * (2 * 9216 + 2 * 4096 + 2 * 1000)  # bytes over the bus, of both
    convolutions = 4 * sum((34944, 614656, 885120, 1327488, 884992))
    over_bus = (activations + 2 * convolutions) / 1.8e9
    seconds = 256 * 0.007081 / 2 + over_bus
    assert halves.run.images_per_second == pytest.approx(256 / seconds, rel=1e-6)
    assert whole.run.images_per_second == pytest.approx(1 / 0.007081, rel=1e-6)


def test_the_trained_network_is_divided_by_its_plan():
    """The counted network is the same one: only its layers' sizes are known."""
    model = ("model=alexnet", "data=image_folder", "batch_size=256", "model.shards=2", *YADAN)
    step = "cluster.step_seconds=1.812736"
    (counted,), (own,) = each(*model), each(*model, "workload=own", step)
    assert own.run.images_per_second == pytest.approx(counted.run.images_per_second, rel=1e-6)


def slowest(assumed, *settings):
    config = composed(["cluster=virtual", f"+cluster.assumed={{{assumed}}}", *settings], ROOT)
    return at_slowest(Point.of(config)).values["cluster"]


@pytest.mark.parametrize(
    ("assumed", "message"),
    [
        ("link.color: [1, 2]", r"there is no cluster\.link\.color"),
        ("step_seconds.x: [1, 2]", r"there is no cluster\.step_seconds\.x"),
        ("step_jitter: [0.2, 0.1]", r"step_jitter: 0\.2 is above 0\.1"),
    ],
)
def test_an_assumption_that_cannot_be_is_named(assumed, message):
    with pytest.raises(SettingError, match=message) as error:
        slowest(assumed)
    assert error.value.setting == "cluster.assumed"


def test_every_published_profile_has_what_it_assumes_within_its_range():
    for name in ("minotauro", "titan", "four_titans", "minsky", "ec2_p2", "compute_engine_k80"):
        cluster = composed([f"cluster={name}"], ROOT).values["cluster"]
        for setting, (low, high) in cluster["assumed"].items():
            value = cluster
            for part in setting.split("."):
                value = value[part]
            assert low <= value <= high, (name, setting)


def test_a_batch_outside_of_what_was_measured_or_fitted_is_said():
    titan = "cluster=titan workload=googlenet"
    for words, size, outside in (
        *(("cluster=two_cores_small_cnn", size, size in (4, 129)) for size in (4, 8, 128, 129)),
        *((titan, size, size == 8) for size in (8, 32)),
    ):
        (prediction,) = each(*words.split(), f"batch_size={size}")
        assert prediction.extrapolated is outside
        assert cells(prediction)["batch_size"] == f"{size}{'*' * outside}"
        assert any(note.startswith("*:") for note in notes([prediction])) is outside


def test_a_network_has_its_own_bytes_and_tensors():
    """7,674 weights of the small CNN, over a link that carries as many a second."""
    slow = ("cluster=virtual", "workers=2", "scheme.collective=ring", "cluster.overlap=false")
    (prediction,) = each(*slow, "cluster.node_link.bandwidth=30696")
    assert prediction.run.images_per_second == pytest.approx(64 / 2)
    assert prediction.rows == []
    point = Point.of(composed(["cluster=virtual", "workload=sized", "workload.num_bytes=9"], ROOT))
    assert sum(sized_workload(point).sizes_of_tensors) == 7674


OF_RESNET = "workload=resnet50 cluster.step_seconds=1"
REFUSED = {
    "workers=2": "cluster",
    "cluster=titan": "workload",
    "cluster=titan workload=resnet50": "workload",
    "cluster=virtual scheme=async_parameter_server scheme.servers=21 workers=2": "scheme.servers",
    f"cluster=minsky model.shards=3 workers=8 {OF_RESNET}": "model.shards",
    f"cluster=titan model.shards=9 model.split=fully_connected batch_size=36 {OF_RESNET}": (
        "model.shards"
    ),
    f"cluster=titan model.shards=2 batch_size=33 {OF_RESNET}": "batch_size",
    f"cluster=titan model.shards=2 scheme.collective=ring {OF_RESNET}": "scheme.collective",
    "cluster=virtual workload=sized workload.num_bytes=400 model.shards=2": "workload",
}


def test_what_cannot_be_predicted_or_divided_is_named():
    for words, setting in [*REFUSED.items(), ("cluster=virtual", "steps")]:
        with pytest.raises(SettingError) as error:
            each(*words.split(), steps=1 if setting == "steps" else 10)
        assert error.value.setting == setting
        assert "\n" not in str(error.value)


def test_what_would_have_no_effect_is_refused():
    for words, setting in (
        ("--published workers=2", "published"),
        ("--study own_pace workers=2", "study"),
        ("--record 0123456789ab --json found.json", "json"),
    ):
        with pytest.raises(SettingError, match=r"leave .* out") as error:
            cli.command("predict").run(cli._parse(["predict", *words.split()]), ROOT)
        assert error.value.setting == setting


@pytest.mark.parametrize(
    ("assumed", "chosen", "found"),
    [
        # the least bandwidth is half of the greatest: it, or as much less
        *(("link.bandwidth: [2e+8, 4e+8]", *pair) for pair in (("3e+8", 2e8), ("8e+9", 4e9))),
        *(("link.bandwidth: [2e+8, 4e+8]", *pair) for pair in (("8GB/s", 4e9), ("null", None))),
        # the greatest time, unless another was chosen
        *(("link.latency: [0.1, 2]", *pair) for pair in ((0.5, 2.0), (3.0, 3.0), (0.05, 0.05))),
    ],
)
def test_what_is_assumed_is_taken_at_its_slowest(assumed, chosen, found):
    setting = assumed.partition(":")[0]
    cluster = slowest(assumed, f"cluster.{setting}={chosen}")
    assert (cluster["link"][setting.partition(".")[2]], cluster["step_seconds"]) == (found, 1)
