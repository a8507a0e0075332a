"""Means in pairs between two real processes, inside a node and between nodes."""

import pytest

from tests.clock.wall.pairs import NUM_WEIGHTS
from tests.exchange.talking import WIRES
from tests.launching import launch

BODY = 8 * NUM_WEIGHTS


@pytest.mark.parametrize("wire", WIRES)
def test_no_mean_is_formed_within_a_step_and_the_asked_one_answers_to_the_end(wire, tmp_path):
    """(4 + 10) / 2, then (6 + 7) / 2; bytes with the first answer, which says that it is there."""
    target = "tests.clock.wall.pairs:average"
    asked, asking = launch(target, (WIRES[wire],), workers=2, servers=0, log_folder=tmp_path)
    assert asked == ([6.5] * NUM_WEIGHTS, [(1, 1, 1), (1, 1, 1)], (3 * BODY, 2 * BODY))
    assert asking == ([6.5] * NUM_WEIGHTS, [(0, 0, 0), (0, 1, 1)], (2 * BODY, 3 * BODY))


@pytest.mark.parametrize("lost", [0, 1])
def test_the_end_of_a_neighbour_is_an_error_and_no_hang(lost, tmp_path):
    told = launch("tests.clock.wall.pairs:lose", (lost,), workers=2, servers=0, log_folder=tmp_path)
    assert told[lost] is None
    assert told[1 - lost].startswith(f"worker {lost} is gone: ")
