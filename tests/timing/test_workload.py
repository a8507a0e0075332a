"""Workloads: bytes of messages, buckets of gradients by hand, and steps on accelerator chips."""

from pathlib import Path

import pytest
import yaml

from paceline.errors import SettingError
from paceline.study.compose import composed
from paceline.timing.chip import Chip
from paceline.timing.workload import BUCKET_BYTES, Bucket, CountedNetwork, OwnNetwork, share_of_step

MIB = 2**20 // 4  # weights


def counted(*layers):
    rows = [[f"layer {n}", weights, work, 1] for n, (weights, work) in enumerate(layers)]
    return CountedNetwork(name="counted", image_shape=[3, 4, 4], num_classes=2, layers=rows)


def test_a_byte_beyond_a_bucket_needs_another():
    for beyond, count in ((-1, 1), (0, 1), (1, 2), (BUCKET_BYTES + 1, 3)):
        buckets = OwnNetwork().buckets(BUCKET_BYTES + beyond)
        assert len(buckets) == count
        assert max(bucket.num_bytes for bucket in buckets) <= BUCKET_BYTES
        assert buckets[-1].ready == 1


def test_messages_of_a_counted_network():
    """A quarter of the trained network's weights becomes a quarter of this one's."""
    network = counted((1000, 1), (3000, 1))
    assert network.message_bytes(25, 100) == 4 * 1000
    assert network.message_bytes(100, 100) == 4 * 4000
    assert network.statistics_bytes(100) == 0
    assert network.of_size(5, 5) is network


def test_buckets_are_filled_from_the_last_layer_on():
    """30 MiB of the last layer by itself, 26 MiB of the two before, and what is left."""
    network = counted((2 * MIB, 40), (20 * MIB, 30), (6 * MIB, 20), (30 * MIB, 10))
    assert network.buckets(100) == [
        Bucket(30 * 2**20, 0.1),
        Bucket(26 * 2**20, 0.6),
        Bucket(2 * 2**20, 1.0),
    ]
    # a layer without weights makes none
    assert counted((0, 40), (30 * MIB, 10)).buckets(100) == [Bucket(30 * 2**20, 0.2)]


def test_the_trained_network_itself_and_where_nothing_is_trained():
    own = OwnNetwork()
    assert own.name == "own"
    assert own.message_bytes(30, 40) == own.statistics_bytes(30) == 30
    assert own.buckets(BUCKET_BYTES) == [(BUCKET_BYTES, 1.0)]
    third = BUCKET_BYTES * 3 // 4
    assert own.buckets(4 * third) == [(4 * third // 3, n / 3) for n in (1, 2, 3)]
    sized = own.of_size(1000, 30)
    assert (sized.message_bytes(4, 4), sized.message_bytes(4, 8)) == (1000, 500)
    assert (sized.buckets(4), sized.statistics_bytes(0)) == ([(1000, 1.0)], 30)
    assert [share_of_step(share) for share in (0, 0.25, 1)] == pytest.approx([1 / 3, 0.5, 1])


def test_a_network_of_nothing_is_refused():
    nothing = "no weights, or multiplies nothing"
    for layer, message in (
        (["a", 1, 2], r"workload\.layers"),
        *((["a", *each, 1], nothing) for each in ((0, 5), (5, 0))),
    ):
        with pytest.raises(SettingError, match=message):
            CountedNetwork(name="bad", image_shape=[3, 4, 4], num_classes=2, layers=[layer])


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


def test_a_step_takes_as_long_as_launching_its_kernels():
    """Measured on an H200 with networks that compute for 1 ms (benchmarks/README.md): the small CNN
    and ResNet-18, to which the rule was fitted, and a rate that was kept aside.
    """
    for layers, batch_size, images_per_second, within in (
        (7, 32, 12_245, 0.01),
        (41, 32, 3_342, 0.01),
        (41, 128, 12_257, 0.1),
    ):
        chip = chip_of(A100.with_name("h200.yaml"))
        rate = chip.rate_of_size(122_157_056, 10**6, 44_700_000, layers)
        found = batch_size / rate.seconds(batch_size)
        assert found == pytest.approx(images_per_second, rel=within)
        assert rate.seconds(2**17) > 10 * rate.launching
