"""Every schedule, carried out on exact integers; and the trees of multicolor."""

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.exchange.collectives import COLLECTIVES, collective, num_colors, pieces, trees

every_schedule = pytest.mark.parametrize("name", COLLECTIVES)
exactly = settings(max_examples=40, derandomize=True, database=None, deadline=None)
SHORT, LONG = st.integers(0, 30), st.integers(30_000, 60_000)


@every_schedule
@exactly
@given(workers=st.integers(1, 20), length=SHORT)
def test_every_worker_ends_with_the_sum(name, workers, length):
    vectors = [[10**worker + i for i in range(length)] for worker in range(workers)]
    total = [sum(column) for column in zip(*vectors, strict=True)]
    for moves in collective(name).schedule(workers, length):
        held = [list(vector) for vector in vectors]
        for move in moves:
            for i in range(move.first, move.last):
                kept = vectors[move.receiver][i] if move.adds else 0
                vectors[move.receiver][i] = kept + held[move.sender][i]
    assert vectors == [total] * workers


@every_schedule
@exactly
@given(workers=st.integers(1, 20), length=SHORT | LONG)
def test_volumes_are_the_sums_of_a_schedule(name, workers, length):
    """A vector passes each worker but one twice: no all-reduce by messages between two workers
    moves less.
    """
    moved = [[0, 0] for _ in range(workers)]
    schedule = collective(name).schedule(workers, length)
    for move in itertools.chain.from_iterable(schedule):
        moved[move.sender][0] += move.last - move.first
        moved[move.receiver][1] += move.last - move.first
    declared = collective(name).volumes(workers, length)
    assert [list(volume) for volume in declared] == moved
    assert [volume.in_bytes(8) for volume in declared] == [(8 * a, 8 * b) for a, b in moved]
    assert sum(volume.sent for volume in declared) == 2 * (workers - 1) * length


@every_schedule
@exactly
@given(workers=st.integers(1, 9), length=SHORT | LONG)
def test_no_message_is_empty_and_none_overwrites_what_another_carries(name, workers, length):
    """What lands in place is neither sent nor added to in that round, nor is a sum sent."""
    for moves in collective(name).schedule(workers, length):
        assert all(0 <= m.first < m.last <= length and m.sender != m.receiver for m in moves)
        for worker in range(workers):
            sent = [m for m in moves if m.sender == worker]
            received = [m for m in moves if m.receiver == worker]
            for landed, other in itertools.product(received, sent + received):
                alone = landed is other or (landed.adds and other in received and other.adds)
                assert alone or landed.last <= other.first or other.last <= landed.first


@exactly
@given(first=st.integers(0, 9), length=st.integers(1, 10**6), filling=st.integers(1, 5))
def test_pieces_cover_a_part_once_and_are_neither_small_nor_many(first, length, filling):
    parts = pieces(first, first + length, filling)
    assert [parts[0][0], parts[-1][1]] == [first, first + length]
    assert all(one[1] == other[0] for one, other in itertools.pairwise(parts))
    assert len(parts) == 1 or min(last - start for start, last in parts) >= 4096
    assert len(parts) <= 24 * filling


def carried(moves):
    """What the link of each worker carries, whose directions do not hinder each other."""
    numbers = Counter()
    for move in moves:
        numbers[move.sender, "out"] += move.last - move.first
        numbers[move.receiver, "in"] += move.last - move.first
    return numbers


@pytest.mark.parametrize("workers", [2, 4, 8, 16, 64])
@pytest.mark.parametrize("name", ["multicolor", "parameter_server"])
def test_filling_a_pipeline_costs_at_most_five_percent(name, workers):
    """A round takes as long as its busiest link, all together no longer than the busiest worker."""
    rounds = collective(name).schedule(workers, 50_000_000)
    at_least = max(carried([move for moves in rounds for move in moves]).values())
    assert sum(max(carried(moves).values()) for moves in rounds) <= 1.05 * at_least


def inner_members(order):
    children = num_colors(len(order))
    return {order[(position - 1) // children] for position in range(1, len(order))}


def test_each_color_has_a_tree_over_all_workers_with_at_most_k_children():
    """And no worker is an inner member of two; as many colors as have room."""
    number = [num_colors(workers) for workers in (1, 2, 3, 4, 5, 6, 7, 8, 11)]
    assert number == [1, 2, 3, 4, 4, 3, 3, 4, 2]
    assert [inner_members(order) for order in trees(8)] == [{0, 1}, {2, 3}, {4, 5}, {6, 7}]  # Kumar
    for workers in range(2, 70):
        inner = [member for order in trees(workers) for member in inner_members(order)]
        assert len(set(inner)) == len(inner), workers
        colors = num_colors(workers)
        rounds = collective("multicolor").schedule(workers, colors)
        moves = [*itertools.chain.from_iterable(rounds)]
        for color, order in enumerate(trees(workers)):  # one element each
            up = {m.sender: m.receiver for m in moves if m.first == color and m.adds}
            down = {m.receiver: m.sender for m in moves if m.first == color and not m.adds}
            assert up == down, (workers, color)
            assert set(up) == set(range(workers)) - {order[0]}, (workers, color)
            assert max(Counter(up.values()).values()) <= colors, (workers, color)
            for member in up:
                for _ in range(workers):
                    member = up.get(member, member)
                assert member == order[0], (workers, color)
