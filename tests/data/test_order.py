"""The order of data: a stream over any number of workers, and shares of a partitioned set."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.data.augmentation import CropAndFlip
from paceline.data.batches import Normalisation, WorkerBatches, evaluation_batches
from paceline.data.image_set import ImageSet
from paceline.data.order import PartitionedOrder, SampleStream, StreamOrder
from paceline.random_bits import random_bits, uniform

NUM_SAMPLES = 30
PIXELS = torch.arange(NUM_SAMPLES * 3 * 5 * 4).mul(7).remainder(256).to(torch.uint8)
IMAGES = ImageSet(PIXELS.reshape(NUM_SAMPLES, 3, 5, 4), torch.arange(NUM_SAMPLES))
MEAN, STD = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
few = settings(max_examples=60, derandomize=True, database=None, deadline=None)


@st.composite
def orders(draw, aligned=False):
    """Any number of workers, samples and batches; `aligned`: whole rounds in an epoch."""
    workers, batch_size = draw(st.integers(1, 8)), draw(st.integers(1, 4))
    if aligned:
        num_samples = workers * batch_size * draw(st.integers(1, 4))
    else:
        num_samples = workers * batch_size + draw(st.integers(0, 40))
    by_class, stream = draw(st.booleans()), SampleStream(num_samples, draw(st.integers(0, 9)))
    every = draw(st.none() | st.integers(1, 3))
    labels = np.arange(num_samples) % 3 if by_class else None
    return PartitionedOrder(stream, workers, batch_size, shuffle_every=every, labels=labels)


def drawn(order, worker, rounds):
    return torch.cat([order.indices(worker, n) for n in rounds]).tolist()


@few
@given(orders(), st.integers(0, 4))
def test_in_every_period_the_set_is_held_once_in_even_shares(order, period):
    shares = order.shares(period)
    assert sorted(np.concatenate(shares).tolist()) == list(range(order.num_samples))
    assert [len(share) for share in shares] == order.sizes
    assert max(order.sizes) - min(order.sizes) <= 1
    assert order.smallest_share == min(order.sizes)


@few
@given(orders(), st.integers(0, 30))
def test_a_worker_draws_what_it_holds_and_all_of_it_before_any_of_it_again(order, n):
    worker = order.num_workers - 1
    share = set(order.share(worker, order.period(n)).tolist())
    assert set(order.indices(worker, n).tolist()) <= share
    first = order.first_batch(order.period(n))
    rounds = [each for each in range(first, n + 1) if order.period(each) == order.period(n)]
    taken = drawn(order, worker, rounds)
    whole = len(taken) // len(share) * len(share)
    counts = np.bincount(taken[:whole], minlength=order.num_samples)
    assert set(counts[sorted(share)].tolist()) <= {whole // len(share)}


@few
@given(orders(), st.integers(0, 30))
def test_a_period_begins_with_the_first_round_that_its_epochs_leave_whole(order, n):
    """All workers agree, since it is a function of the number of a batch alone."""
    per_period = (order.shuffle_every or 10**9) * order.num_samples
    assert order.period(n) == n * order.num_workers * order.batch_size // per_period
    assert order.first_batch(order.period(n)) <= n


@few
@given(orders(aligned=True))
def test_every_sample_is_drawn_equally_often_where_epochs_are_whole_rounds(order):
    epochs = order.shuffle_every or 1
    rounds = range(epochs * order.num_samples // (order.num_workers * order.batch_size))
    counts = np.zeros(order.num_samples, int)
    for worker in range(order.num_workers):
        np.add.at(counts, drawn(order, worker, rounds), 1)
    assert set(counts.tolist()) == {epochs}


@few
@given(orders(aligned=True), st.integers(0, 20))
def test_a_set_that_is_shuffled_every_epoch_has_the_order_of_a_replicated_set(order, n):
    size = order.batch_size
    every = PartitionedOrder(order.stream, order.num_workers, size, shuffle_every=1)
    replicated = StreamOrder(order.stream, order.num_workers, size)
    for worker in range(order.num_workers):
        assert every.indices(worker, n).equal(replicated.indices(worker, n))


def test_by_class_sorts_the_first_shares_and_a_shuffle_mends_them():
    labels = np.arange(40) % 4
    order = PartitionedOrder(SampleStream(40, 0), 4, 5, shuffle_every=1, labels=labels)
    assert [set(labels[share].tolist()) for share in order.shares(0)] == [{0}, {1}, {2}, {3}]
    assert all(len(set(labels[share].tolist())) > 1 for share in order.shares(1))
    first = drawn(order, 0, range(2))
    assert sorted(first) == list(range(0, 40, 4))
    assert first != sorted(first)  # they are not drawn in that order


@pytest.mark.parametrize("kind", [StreamOrder, PartitionedOrder])
def test_a_copy_in_another_process_is_the_same_order_and_small(kind):
    order = kind(SampleStream(10_000, 0), 4, 5)
    order.indices(3, 100)
    content = pickle.dumps(order)
    assert len(content) < 2_000
    assert pickle.loads(content).indices(3, 100).equal(order.indices(3, 100))


def batches_of(worker, num_workers, batch_size, augmentation=None):
    return WorkerBatches(
        IMAGES,
        StreamOrder(SampleStream(NUM_SAMPLES, seed=3), num_workers, batch_size),
        Normalisation(MEAN, STD, torch.float64),
        worker=worker,
        num_batches=12,
        augmentation=augmentation,
    )


def test_stream_concatenates_permutations_and_carries_the_remainder_over():
    stream = SampleStream(NUM_SAMPLES, seed=0)
    endless = stream.indices(0, 5 * NUM_SAMPLES).reshape(5, NUM_SAMPLES)
    assert all(epoch.sort().values.equal(torch.arange(NUM_SAMPLES)) for epoch in endless)
    assert len({tuple(epoch.tolist()) for epoch in endless}) == 5
    pieces = [SampleStream(NUM_SAMPLES, seed=0).indices(first, 7) for first in range(0, 140, 7)]
    assert torch.cat(pieces).equal(endless.flatten()[:140])


def test_stream_is_the_same_on_every_version():
    assert SampleStream(8, seed=0).indices(0, 8).tolist() == [7, 5, 6, 0, 3, 1, 2, 4]


def test_going_back_many_epochs_gives_the_same_indices():
    stream = SampleStream(4, seed=0)
    first = stream.indices(0, 100)
    assert stream.indices(0, 100).equal(first)
    assert stream.indices(41, 3).equal(first[41:44])


def test_nth_batch_of_worker_k_is_batch_n_times_K_plus_k_of_the_stream():
    stream = SampleStream(NUM_SAMPLES, seed=3)
    for k in range(4):
        for n, (_, labels) in enumerate(batches_of(k, 4, 7)):
            assert labels.equal(stream.indices((n * 4 + k) * 7, 7))


@pytest.mark.parametrize("augmentation", [None, CropAndFlip(padding=2, flip=True)])
@pytest.mark.parametrize("num_workers", [2, 4])
def test_K_workers_with_batches_of_B_over_K_see_what_one_with_B_sees(num_workers, augmentation):
    alone = batches_of(0, 1, 8, augmentation)
    workers = [
        batches_of(k, num_workers, 8 // num_workers, augmentation) for k in range(num_workers)
    ]
    for n in range(12):
        images, labels = (torch.cat(parts) for parts in zip(*(w[n] for w in workers), strict=True))
        assert images.equal(alone[n][0])
        assert labels.equal(alone[n][1])


def test_batches_are_normalised_per_channel():
    images, labels = batches_of(0, 1, 6)[2]
    shape = (1, 3, 1, 1)
    raw = IMAGES.images[labels].double() / 255
    expected = (raw - torch.tensor(MEAN).double().view(shape)) / torch.tensor(STD).view(shape)
    torch.testing.assert_close(images, expected, rtol=0, atol=1e-6)
    assert images.dtype == torch.float64


def test_batches_are_counted_and_end():
    batches = batches_of(0, 1, 6)
    assert len(batches) == len(list(batches)) == 12
    with pytest.raises(IndexError):
        batches[12]
    with pytest.raises(ValueError, match="worker 2 of 2"):
        batches_of(2, 2, 4)


def test_evaluation_sees_every_image_once_in_order():
    batches = list(evaluation_batches(IMAGES, 8, Normalisation(MEAN, STD, torch.float32)))
    assert [len(labels) for _, labels in batches] == [8, 8, 8, 6]
    assert torch.cat([labels for _, labels in batches]).equal(IMAGES.labels)
    assert batches[0][0].dtype == torch.float32


COUNTERS = [0, 1, 15, 16, 17, 31, 32, 1000]


def test_a_number_is_that_of_its_counter_alone():
    one_by_one = [uniform(counter, "made", 7) for counter in reversed(COUNTERS)]
    bits = random_bits(np.array(COUNTERS), "made", 7)
    assert one_by_one[::-1] == [(int(each >> np.uint64(12)) + 0.5) / 2**52 for each in bits]
    assert all(0 < each < 1 for each in one_by_one)


def test_streams_whose_names_are_equal_in_python_are_apart():
    assert len({uniform(0, "made", seed) for seed in (1, True)}) == 2
