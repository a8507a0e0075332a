"""Workloads: bytes of messages, and buckets of gradients by hand."""

import pytest

from paceline.errors import SettingError
from paceline.timing.workload import (
    BUCKET_BYTES,
    Bucket,
    CountedNetwork,
    OwnNetwork,
    share_of_step,
)

MIB = 2**20 // 4  # weights


def counted(*layers):
    rows = [[f"layer {n}", weights, work, 1] for n, (weights, work) in enumerate(layers)]
    return CountedNetwork(name="counted", image_shape=[3, 4, 4], num_classes=2, layers=rows)


@pytest.mark.parametrize(("beyond", "count"), [(-1, 1), (0, 1), (1, 2), (BUCKET_BYTES + 1, 3)])
def test_a_byte_beyond_a_bucket_needs_another(beyond, count):
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


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([["a", 1, 2]], r"workload\.layers"),
        *(([["a", *each, 1]], "no weights, or multiplies nothing") for each in ((0, 5), (5, 0))),
    ],
)
def test_a_network_of_nothing_is_refused(layers, message):
    with pytest.raises(SettingError, match=message):
        CountedNetwork(name="bad", image_shape=[3, 4, 4], num_classes=2, layers=layers)
