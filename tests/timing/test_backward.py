"""Parts of the gradients: when they are there, and where they are, by hand."""

import pytest

from paceline.timing.workload import Bucket, part_sizes, parts_within, share_of_step

PARTS = [Bucket(60, 0.25), Bucket(30, 0.5), Bucket(10, 1.0)]  # from the end of the vector on


def test_backward_is_two_thirds_of_a_step():
    found = [share_of_step(share) for share in (0, 0.25, 1)]
    assert found == pytest.approx([1 / 3, 0.5, 1])


@pytest.mark.parametrize(
    ("num_weights", "sizes"), [(10, [1, 3, 6]), (100, [10, 30, 60]), (4, [0, 2, 2]), (1, [0, 0, 1])]
)
def test_a_vector_is_divided_by_bytes(num_weights, sizes):
    assert part_sizes(PARTS, num_weights) == sizes


@pytest.mark.parametrize(
    ("first", "last", "num_bytes", "found"),
    [
        (0, 1, 100, PARTS),
        (0, 1, 1000, [(600, 0.25), (300, 0.5), (100, 1.0)]),
        (0.5, 1, 50, [(50, 0.25)]),
        (0, 0.5, 50, [(10, 0.25), (30, 0.5), (10, 1.0)]),
        (0, 0.05, 5, [(5, 1.0)]),
        (0.2, 0.3, 1, [(1, 0.5)]),
        (0, 1, 1, [(1, 0.25)]),
    ],
)
def test_a_piece_has_its_bytes_of_each_part(first, last, num_bytes, found):
    assert parts_within(PARTS, first, last, num_bytes) == found


def test_the_pieces_of_three_have_all_bytes():
    thirds = [parts_within(PARTS, n / 3, (n + 1) / 3, 33) for n in range(3)]
    assert [sum(part.num_bytes for part in third) for third in thirds] == [33, 33, 33]
