"""Accelerator chips: their files in conf/, and their checks."""

from pathlib import Path

import pytest
import yaml

from paceline.errors import SettingError
from paceline.study.compose import composed
from paceline.timing.chip import Chip

ROOT = Path(__file__).parents[2]
CHIPS = sorted((ROOT / "conf/cluster/base/chip").glob("*.yaml"))
A100 = ROOT / "conf/cluster/base/chip/a100_80gb.yaml"


def chip_of(path):
    overrides = ["cluster=titan", "workload=nin", f"+cluster/base/chip@cluster.chip={path.stem}"]
    return composed(overrides, ROOT).target("cluster").build().chip


def test_the_file_of_every_chip_is_one():
    assert CHIPS
    for path in CHIPS:
        chip = chip_of(path)
        assert all(0 < share < 1 for share in chip.utilisation.values()), path.stem
        assert 1e10 <= chip.memory < chip.memory_bandwidth < min(chip.peak.values()), path.stem


def test_a_profile_names_its_chip_among_its_defaults():
    overrides = ["cluster=titan", "workload=googlenet"]
    before = composed(overrides, ROOT)
    after = composed([*overrides, "+cluster/base/chip@cluster.chip=a100_80gb"], ROOT)
    assert after.target("cluster").build().chip == chip_of(A100)
    assert before.target("cluster").build().chip is None
    none = {**before.values, "cluster": {**before.values["cluster"], "chip": None}}
    assert before.replaced(**none).key == before.key != after.key


def test_a_chip_has_a_peak_and_a_utilisation_in_each_precision():
    known = yaml.safe_load(A100.read_text())
    wrong = {
        "precision": ({"precision": "8-true"}, r"chip\.precision: A100 80 GB has no 8-true; there"),
        "utilisation": ({"utilisation": {}}, r"chip\.utilisation: 16-mixed, 32-true, bf16-mixed"),
        "peak": ({"peak": {"32-true": 0.0}}, r"cluster\.chip\.peak"),
    }
    for values, message in wrong.values():
        with pytest.raises(SettingError, match=message):
            Chip(**{**known, **values})
    with pytest.raises(SettingError, match=r"^training\.precision: A100 80 GB has no 64-true"):
        Chip(**known).check_precision("64-true")


def test_steps_shorter_than_those_by_which_the_rule_was_judged_are_outside_of_its_range():
    """Each of ten thousand million multiply-adds and nothing else: 0.28 ms an image."""
    rate = chip_of(CHIPS[0]).rate_of_size(10**10, 0, 4, 1)
    least, most = rate.batch_sizes
    assert rate.seconds(least - 1) < 0.04 <= rate.seconds(least)
    assert most == 512
    assert chip_of(CHIPS[0]).rate_of_size(10**13, 0, 4, 1).batch_sizes == (1, 512)


@pytest.mark.parametrize(
    ("layers", "batch_size", "images_per_second", "within"),
    [
        (7, 32, 12_245, 0.01),  # the small CNN and ResNet-18, to which the rule was fitted
        (41, 32, 3_342, 0.01),
        (41, 128, 12_257, 0.1),  # kept aside
    ],
)
def test_a_step_takes_as_long_as_launching_its_kernels(
    layers, batch_size, images_per_second, within
):
    """Measured on an H200 with networks that compute for 1 ms (benchmarks/README.md)."""
    rate = chip_of(A100.with_name("h200.yaml")).rate_of_size(122_157_056, 10**6, 44_700_000, layers)
    assert batch_size / rate.seconds(batch_size) == pytest.approx(images_per_second, rel=within)
    assert rate.seconds(2**17) > 10 * rate.launching
