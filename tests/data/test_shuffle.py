"""A shuffle: every sample once, to where the next period wants it, in a bounded buffer."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.data.order import PartitionedOrder, SampleStream
from paceline.data.shuffle import RowFormat, Share, Shuffle

FORMAT = RowFormat([(torch.uint8, (3,)), (torch.int64, ())])
few = settings(max_examples=60, derandomize=True, database=None, deadline=None)


def rows_of(samples):
    """Pixels and a label by which each sample is known."""
    numbers = torch.from_numpy(samples)
    pixels = torch.stack([numbers % 251, numbers % 13, numbers % 7], dim=1).to(torch.uint8)
    return FORMAT.pack(pixels, 1000 + numbers)


def held(order):
    shares = order.shares(0)
    spare = order.num_workers - 1
    return [Share(share, rows_of, FORMAT, order.num_samples, spare) for share in shares]


def carry_out(shuffle, shares):
    """An all-to-all among shares in this process; returns the labels of what was sent."""
    sent = []
    exchanges = [shuffle.exchange(worker, share) for worker, share in enumerate(shares)]
    for parts in zip(*exchanges, strict=True):
        pieces = [part.going.split(part.sent) for part in parts]
        for worker, part in enumerate(parts):
            assert part.going.nbytes + part.coming.nbytes <= BUFFER + 2 * len(shares) * len(ROW)
            part.coming[:] = torch.cat([piece[worker] for piece in pieces])
            assert [len(piece[worker]) for piece in pieces] == part.received
            sent += FORMAT.unpack(part.going)[1].tolist()
    return sent


ROW = bytes(FORMAT.num_bytes)
BUFFER = 10 * len(ROW)


@few
@given(
    workers=st.integers(1, 7),
    batch_size=st.integers(1, 4),
    more=st.integers(0, 60),
    every=st.integers(1, 3),
    by_class=st.booleans(),
)
def test_each_sample_moves_once_to_its_next_holder(workers, batch_size, more, every, by_class):
    num_samples = workers * batch_size + more
    labels = np.arange(num_samples) % 2 if by_class else None
    order = PartitionedOrder(
        SampleStream(num_samples, 0),
        workers,
        batch_size,
        shuffle_every=every,
        labels=labels,
    )
    shares = held(order)
    for period in range(3):
        before, after = order.shares(period), order.shares(period + 1)
        shuffle = Shuffle(before, after, FORMAT.num_bytes, BUFFER)
        sent = carry_out(shuffle, shares)
        stayed = sum(len(np.intersect1d(*pair)) for pair in zip(before, after, strict=True))
        assert len(sent) == len(set(sent)) == shuffle.moved.sum() == num_samples - stayed
        for share, samples in zip(shares, after, strict=True):
            pixels, labels_held = share.take(torch.from_numpy(samples))
            assert FORMAT.pack(pixels, labels_held).equal(rows_of(samples))


def test_a_random_shuffle_moves_all_but_one_in_p():
    """N (1 - 1/p) samples in the mean: 5 standard deviations of a sample's staying are allowed."""
    order = PartitionedOrder(SampleStream(20_000, 0), 8, 5, shuffle_every=1)
    moved = Shuffle(order.shares(0), order.shares(1), 1).moved
    expected, deviation = 20_000 * 7 / 8, (20_000 * 7 / 64) ** 0.5
    assert abs(moved.sum() - expected) < 5 * deviation
    assert moved.sum(0).tolist() == moved.sum(1).tolist()  # what leaves a share makes room in it


def test_a_share_knows_what_it_lacks():
    share = Share(np.array([2, 5]), rows_of, FORMAT, num_samples=9, spare=1)
    with pytest.raises(KeyError, match="sample 3 is not in this worker's share"):
        share.take(torch.tensor([2, 3]))
    with pytest.raises(RuntimeError, match="2 samples for 1 free rows"):
        share.accept(np.array([7, 8]), rows_of(np.array([7, 8])))


@pytest.mark.parametrize("number", [0, 1, 4])
def test_rows_give_back_tensors_of_any_type(number):
    row_format = RowFormat([(torch.uint8, (2, 3)), (torch.float32, (5,)), (torch.int64, ())])
    parts = [
        torch.arange(6 * number).reshape(number, 2, 3).to(torch.uint8),
        torch.rand(number, 5),
        torch.arange(number),
    ]
    rows = row_format.pack(*parts)
    assert rows.shape == (number, row_format.num_bytes) == (number, 6 + 20 + 8)
    for part, again in zip(parts, row_format.unpack(rows), strict=True):
        assert again.equal(part)
        assert again.dtype == part.dtype
