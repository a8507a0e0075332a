"""The box of a search ends where its best trial may hide a better one."""

import pytest

from paceline.study.trials import Bounds, SearchBox, Side

BOX = SearchBox(Bounds(0.001, 1), Bounds(0.01, 1))


@pytest.mark.parametrize(
    ("rate", "rest", "side"),
    [
        (0.03, 0.1, None),
        (0.0015, 0.1, Side(0, False)),  # below 0.001 * 1000^0.1 = 0.0020
        (0.0025, 0.1, None),
        (0.6, 0.1, Side(0, True)),
        (0.03, 0.015, Side(1, False)),
        (0.03, 0.99, None),  # momentum 0: there is nothing beyond
        (0.0015, 0.99, Side(0, False)),
        (0.0019, 0.0101, Side(1, False)),  # the nearer of two
        (0.0001, 0.1, Side(0, False)),  # outside
    ],
)
def test_the_outer_tenth_is_an_edge(rate, rest, side):
    assert BOX.edge(rate, rest) == side


def test_momentum_is_an_edge_where_the_box_ends_above_0():
    box = SearchBox(Bounds(0.001, 1), Bounds(0.01, 0.5))
    assert box.edge(0.02, 0.48) == Side(1, True)


def test_sides_have_words():
    assert (str(Side(0, True)), str(Side(1, False))) == (
        "highest effective_rate",
        "lowest one_minus_momentum",
    )
