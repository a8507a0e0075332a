"""The order of a partitioned set: who holds what in which period, and draws it when."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.data.order import PartitionedOrder, SampleStream, StreamOrder

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
