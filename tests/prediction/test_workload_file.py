"""Files of conf/workload are what `paceline calibrate --count` writes."""

from pathlib import Path

import pytest
import yaml

from paceline import cli
from paceline.command.calibrate_command import cells, count, total, write_workload
from paceline.errors import SettingError
from paceline.model.network_size import Layer, NetworkSize
from paceline.record.target import Target
from paceline.study.compose import composed

ROOT = Path(__file__).parents[2]
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
    assert all([*cells(layer).values()] in rows for layer in size.layers)
    assert lines[-1] == total(size, 2)


@pytest.mark.parametrize("name", ["own", "Mine", "a/b", ""])
def test_a_name_that_cannot_be_chosen_is_refused(name, tmp_path):
    with pytest.raises(SettingError, match="no name for a workload"):
        write_workload(composed([], ROOT), NetworkSize([]), name, "calibrate --count", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_table_has_layers_and_totals_of_any_number_of_images():
    layers = [Layer("one", 1_000_000, 2_000_000, 3), Layer("", 24, 0, 5)]
    assert [*cells(layers[1]).values()] == ["(itself)", "24", "0", "5"]
    said = "weights 4.0 MB; at batch size 1,000: activations 0.0 MB, a step 0.012 TFLOP"
    assert total(NetworkSize(layers, [3, 1]), 1000) == said
    config = composed(["model=small_cnn"], ROOT)
    assert count(config.replaced(batch_size=1)) == count(config.replaced(batch_size=64))
    for size in (0, -1, 1.5, "32"):
        with pytest.raises(SettingError, match=r"^batch_size: a number of images is needed"):
            count(config.replaced(batch_size=size))
