"""Trials of a search are the same for every configuration, and its box grows towards the best."""

import math
from dataclasses import replace

import pytest

from paceline.errors import SettingError
from paceline.study.trials import Bounds, QuasiRandomSearch, SearchBox, Searched, Side, Trial

SEARCH = QuasiRandomSearch(
    effective_rate=[0.001, 1],
    one_minus_momentum=[0.03, 1],
    searches=5,
    trials=5,
    extensions=2,
    extension_trials=2,
    seed=100,
)
ANY = Searched("gossip", lambda _: None)
FIRST = SEARCH.first(ANY)
BOX = SearchBox(Bounds(0.001, 1), Bounds(0.01, 1))


def places(trial):
    """Logarithms of what the box bounds."""
    return math.log(trial.effective_rate), math.log(1 - trial.momentum)


def nearest(rate, rest):
    """Results of a world in which the trial nearest to `rate` and `rest` is best."""
    target = math.log(rate), math.log(rest)
    return lambda trial: {"status": "finished", "top1": -math.dist(places(trial), target)}


def inside(trial, box):
    values = (trial.effective_rate, 1 - trial.momentum)
    return all(b.low * 0.995 <= v <= b.high * 1.005 for v, b in zip(values, box, strict=True))


def test_the_trials_are_those_of_records():
    """Other points would have other keys: a sweep would run all of its tuning again."""
    assert FIRST[:2] == [
        Trial(lr=0.04185, momentum=0.184, seed=100),
        Trial(lr=0.003328, momentum=0.871, seed=100),
    ]


def test_a_search_has_as_many_trials_as_any_other_and_a_seed_of_its_own():
    seeds = [trial.seed for trial in FIRST]
    assert seeds == [100 + search for search in range(5) for _ in range(5)]


def test_reported_points_have_other_seeds_than_trials():
    SEARCH.require_other_seeds([0, 99, 105])
    with pytest.raises(SettingError, match=r"^tuning\.seed: 101 is also a seed of the study's own"):
        SEARCH.require_other_seeds([0, 104, 101])


def test_trials_fill_the_box_evenly():
    """Each quarter of 32 points of a Sobol sequence, in both settings, has 8 of them."""
    trials = replace(SEARCH, searches=1, trials=32).first(ANY)
    assert all(inside(trial, SearchBox(Bounds(0.001, 1), Bounds(0.03, 1))) for trial in trials)
    for index, (low, high) in enumerate([(0.001, 1), (0.03, 1)]):
        quarters = [
            int(4 * (places(trial)[index] - math.log(low)) / math.log(high / low))
            for trial in trials
        ]
        assert [quarters.count(quarter) for quarter in range(4)] == [8] * 4


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
    side = box.edge(0.02, 0.48)
    assert side == Side(1, True)
    assert box.beyond(side, 1)[0].one_minus_momentum == Bounds(0.5, 1.0)  # and not 25


def test_a_box_grows_in_logarithms():
    low, from_low = BOX.beyond(Side(0, False), 1 / 3)
    high, to_high = BOX.beyond(Side(0, True), 2 / 3)
    assert low.effective_rate == pytest.approx((0.0001, 0.001))
    assert high.effective_rate == pytest.approx((1, 100))
    assert low.one_minus_momentum == high.one_minus_momentum == BOX.one_minus_momentum
    assert from_low.effective_rate == pytest.approx((0.0001, 1))
    assert to_high.effective_rate == pytest.approx((0.001, 100))


def test_a_winner_inside_ends_the_search():
    tried = SEARCH.tried(Searched("gossip", nearest(0.03, 0.2)), [])
    assert (tried.trials, tried.edge) == (tuple(FIRST), "")
    assert tried.best == max(FIRST, key=lambda t: nearest(0.03, 0.2)(t)["top1"])


def test_a_winner_at_an_edge_extends_the_box_until_it_lies_inside():
    tried = SEARCH.tried(Searched("gossip", nearest(0.0003, 0.2)), [])
    assert len(tried.trials) == 25 + 10
    part = SearchBox(Bounds(0.001 * 1000**-0.4, 0.001), Bounds(0.03, 1))  # as dense: 2 for 5
    assert all(inside(trial, part) for trial in tried.trials[25:])
    assert [trial.seed for trial in tried.trials[25:]] == [100 + s for s in range(5) for _ in "ab"]
    assert (tried.best in tried.trials[25:], tried.edge) == (True, "")


def test_there_are_no_more_extensions_than_asked():
    tried = SEARCH.tried(Searched("gossip", nearest(1e-9, 0.2)), [])
    assert len(tried.trials) == 25 + 10 + 10
    second = SearchBox(Bounds(0.001 * 1000**-0.8, 0.001 * 1000**-0.4), Bounds(0.03, 1))
    assert all(inside(trial, second) for trial in tried.trials[35:])
    assert tried.edge == "lowest effective_rate"
    assert len({(trial.lr, trial.momentum) for trial in tried.trials}) == 45


def test_without_extensions_a_winner_at_an_edge_is_named():
    tried = replace(SEARCH, extensions=0).tried(Searched("gossip", nearest(100, 0.2)), [])
    assert (len(tried.trials), tried.edge) == (25, "highest effective_rate")


def test_an_extension_waits_for_all_of_the_box():
    results = nearest(0.0003, 0.2)
    tried = SEARCH.tried(Searched("gossip", lambda t: None if t == FIRST[7] else results(t)), [])
    assert (tried.trials, tried.best) == (tuple(FIRST), None)
    first = set(FIRST)
    tried = SEARCH.tried(Searched("gossip", lambda t: results(t) if t in first else None), [])
    assert (len(tried.trials), tried.best, tried.edge) == (35, None, "")


def test_where_all_diverge_smaller_rates_are_tried():
    tried = SEARCH.tried(Searched("gossip", lambda _: {"status": "diverged", "top1": None}), [])
    assert len(tried.trials) == 45
    assert tried.edge == "lowest effective_rate"
    assert tried.best == min(tried.trials, key=lambda trial: trial.effective_rate)
