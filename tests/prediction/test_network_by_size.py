"""Networks by name: their counted layers as workloads, what times a step, what does not fit."""

import re

import pytest
import torch
import yaml
from hydra.utils import instantiate

from paceline import cli
from paceline.command.calibrate_command import cells as cells_of_layer
from paceline.command.calibrate_command import count, total, write_workload
from paceline.command.predict_command import as_json, cells, notes, table
from paceline.errors import SettingError
from paceline.model.network_size import Layer, NetworkSize
from paceline.prediction.evidence import FACTOR, STEP_FACTOR
from paceline.prediction.network_by_size import in_precision, own_images
from paceline.prediction.predict import StepFrom, predict
from paceline.record.target import Target
from paceline.study.compose import composed, composed_each
from paceline.timing.chip import FLOP, LAUNCH, LAUNCH_LAYER, PASSES, TRAFFIC, UPDATE_PASSES
from tests.tiny import CONF

ROOT = CONF.parent
TITANS = "cluster=titan"
A100S = (TITANS, "+cluster/base/chip@cluster.chip=a100_80gb", "cluster.step_jitter=0")
SMALL = ("model=mobilenet_v3_small", "batch_size=512")


def each(*overrides, steps=3):
    asked = composed_each(overrides, ROOT, [own_images, in_precision])
    return [predict(each.config, steps, each.swept) for each in asked]


def refused(*overrides):
    with pytest.raises(SettingError) as error:
        each(*overrides)
    return str(error.value)


def test_a_step_follows_from_the_layers_and_the_chip():
    """By hand, and by twice as much for float32, of which memory has twice as many bytes."""
    (found,) = each(*A100S, *SMALL)
    workload, chip = found.point.workload, found.cluster.chip
    assert (workload.name, workload.image_shape) == ("mobilenet_v3_small", [3, 224, 224])
    arithmetic = FLOP * workload.size.multiply_adds / chip.utilisation["bf16-mixed"]
    memory = PASSES * 2 * workload.kept / TRAFFIC / chip.memory_bandwidth
    image = arithmetic / chip.peak["bf16-mixed"] + memory
    update = UPDATE_PASSES * workload.weight_bytes(0) / chip.memory_bandwidth
    assert found.run.images_per_second == pytest.approx(512 / (512 * image + update))
    (short,) = each(*A100S, *SMALL, "batch_size=16")  # which waits for its kernels
    layers = sum(layer.weights > 0 for layer in workload.size.layers)
    assert 16 / short.run.images_per_second == pytest.approx(LAUNCH + LAUNCH_LAYER * layers)
    (single,) = each(*A100S, *SMALL, "training.precision=32-true")
    assert 1.9 < found.run.images_per_second / single.run.images_per_second < 3


def test_a_prediction_says_that_its_step_is_from_flops_and_its_interval_is_wider():
    found = each(*A100S, *SMALL, "workers=1,2")
    rate = found[0].run.images_per_second
    assert found[0].step_from is StepFrom.FLOPS
    assert found[0].interval == pytest.approx(
        (rate / FACTOR / STEP_FACTOR, rate * FACTOR * STEP_FACTOR)
    )
    heading, rows = table(found)
    assert heading == "mobilenet_v3_small, titan, sync_allreduce, 512 images per worker and step"
    assert [*rows[0]] == [
        *("workers", "images/s", "interval", "computing", "exchanging", "waiting", "busiest")
    ]
    said = " ".join(notes(found))
    assert said.count("from FLOPs, utilisation assumed") == 1
    assert '"step_time": "from FLOPs, utilisation assumed"' in as_json(found)


def test_a_published_rate_comes_before_flops_in_its_own_precision_and_image_size():
    rate = "{fixed: 0.0, per_image: 0.001, batch_sizes: [64, 64], rows: []}"
    mine = (*A100S, f"+cluster.chip.step_rates={{mobilenet_v3_small: {rate}}}", *SMALL)
    (found,) = each(*mine)
    assert found.step_from is StepFrom.PUBLISHED
    assert found.run.images_per_second == pytest.approx(1000)
    for other in ("training.precision=32-true", "data.image_shape=[3,96,96]"):
        size = ("data=image_folder",) if "data" in other else ()
        (changed,) = each(*mine, *size, other)
        assert changed.step_from is StepFrom.FLOPS, other
    (of_cluster,) = each(TITANS, "model=googlenet", "data=image_folder")
    assert of_cluster.step_from is StepFrom.PUBLISHED
    assert cells(of_cluster)["workload"] == "googlenet"


def test_names_are_swept_and_images_are_those_of_each():
    found = each(*A100S, "model=mobilenet_v3_small,efficientnet_b1", "batch_size=64")
    names = [each.point.workload.name for each in found]
    assert names == ["mobilenet_v3_small", "efficientnet_b1"]
    assert [each.point.workload.image_shape[-1] for each in found] == [224, 240]
    assert [*table(found)[1][0]][:2] == ["workload", "workers"]


def test_what_cannot_be_predicted_is_one_line_with_what_would_help():
    for words, message in (
        ("model=mobilenet_v3_smal", "model: there is no network mobilenet_v3_smal, did you mean "),
        ("", "model: the step of this cluster follows from a network; choose one, as model="),
        ("workload=nin batch_size=90000", "batch_size: 90,000 images of nin per worker do "),
        ("training.precision=64-true", "training.precision: A100 80 GB has no 64"),
        ("training.precision=fast", "training.precision: A100 80 GB has no fast;"),
        ("model=nin", "model: it cannot take 1x28x28 images"),
    ):
        asked = SMALL if words.startswith("training") else ()
        assert refused(*A100S, *asked, *words.split()).startswith(message), words
    too_many = refused(*A100S, *SMALL, "batch_size=100000")
    assert too_many.startswith("batch_size: 100,000 images of mobilenet_v3_small ")
    assert "at most 9," in too_many
    none = refused(*A100S, "model=vit_b_16", "cluster.chip.memory=1.0e+9")
    assert none.startswith("batch_size: 32 images of vit_b")
    assert none.endswith("do not fit into the 1 GB of the A100 80 GB; none fit")
    unknown = "workload: the step of mobilenet_v3_small is not known for this cluster;"
    assert refused(TITANS, *SMALL).startswith(unknown)


def test_memory_is_kept_for_all_that_an_optimizer_of_torch_holds():
    """Each vector of its state takes as much as the weights; plain SGD has one, with momentum."""
    weight_bytes = each(*A100S, *SMALL)[0].point.workload.weight_bytes(0)

    def fit(optimizer, further):
        memory = f"cluster.chip.memory={10**9 + further * weight_bytes}"
        words = (f"model/optimizer={optimizer}", "batch_size=100000", memory)
        return int(re.search(r"at most (\d+) fit", refused(*A100S, *SMALL, *words))[1])

    for path in (ROOT / "conf/model/optimizer").glob("*.yaml"):
        words = (*A100S, *SMALL, f"model/optimizer={path.stem}")
        weight = torch.nn.Parameter(torch.ones(2, 3))
        weight.grad = torch.ones(2, 3)
        optimizer = instantiate(composed(words, ROOT).values["model"]["optimizer"])([weight])
        optimizer.step()
        states = [value for value in optimizer.state[weight].values() if value.shape == (2, 3)]
        assert fit(path.stem, len(states) - 1) <= fit("sgd", 0), path.stem


COUNTED = sorted(
    path.stem
    for path in (ROOT / "conf/workload").glob("*.yaml")
    if "calibrate --count" in path.read_text()
)


@pytest.mark.parametrize("name", COUNTED)
def test_a_file_is_what_its_own_command_writes(name, tmp_path):
    text = (ROOT / f"conf/workload/{name}.yaml").read_text()
    command = text.splitlines()[1].removeprefix("# paceline ")
    calibrate, counts, *overrides, option, written = command.split()
    assert (calibrate, counts, option, written) == ("calibrate", "--count", "--write", name)
    config = composed(overrides, ROOT)
    size = count(config)
    workload = composed([f"workload={name}"], ROOT).values["workload"]
    made = write_workload(config, size, name, command, tmp_path).read_text()
    assert made.splitlines()[:2] == text.splitlines()[:2]
    assert yaml.safe_load(made) == workload
    assert Target("workload", workload).build().size == size


def test_the_command_prints_layers_and_totals(capsys):
    words = ["calibrate", "--count", "model=small_cnn", "batch_size=2"]
    assert cli.command("calibrate").run(cli._parse(words), ROOT) == 0
    lines = capsys.readouterr().out.splitlines()
    size = count(composed(words[2:], ROOT))
    rows = [line.split() for line in lines]
    assert all([*cells_of_layer(layer).values()] in rows for layer in size.layers)
    assert lines[-1] == total(size, 2)


def test_a_name_that_cannot_be_chosen_is_refused(tmp_path):
    for name in ("own", "Mine", "a/b", ""):
        with pytest.raises(SettingError, match="no name for a workload"):
            write_workload(composed([], ROOT), NetworkSize([]), name, "calibrate --count", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_table_has_layers_and_totals_of_any_number_of_images():
    layers = [Layer("one", 1_000_000, 2_000_000, 3), Layer("", 24, 0, 5)]
    assert [*cells_of_layer(layers[1]).values()] == ["(itself)", "24", "0", "5"]
    said = "weights 4.0 MB; at batch size 1,000: activations 0.0 MB, a step 0.012 TFLOP"
    assert total(NetworkSize(layers, [3, 1]), 1000) == said
    config = composed(["model=small_cnn"], ROOT)
    assert count(config.replaced(batch_size=1)) == count(config.replaced(batch_size=64))
    for size in (0, -1, 1.5, "32"):
        with pytest.raises(SettingError, match=r"^batch_size: a number of images is needed"):
            count(config.replaced(batch_size=size))
