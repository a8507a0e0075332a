import math

import pytest

from paceline.analysis.points import points
from tests.made_reports import fail, make_run


def rows(made, runs):
    return points(made(runs)).set_index("key").to_dict("index")


def test_a_point_is_compared_with_one_worker_of_its_seed(made):
    alone = [make_run(seed=s, images_per_second=100.0 * (s + 1)) for s in (0, 1)]
    two = make_run(workers=2, seed=1, images_per_second=300.0)
    lost = fail(make_run(workers=2, seed=0))
    found = rows(made, [*alone, two, lost])
    assert (found[two["key"]]["speedup"], found[two["key"]]["efficiency"]) == (1.5, 0.75)
    assert found[alone[0]["key"]]["speedup"] == 1.0
    assert math.isnan(found[lost["key"]]["speedup"])


def test_a_point_gets_to_the_target_at_an_evaluation(made):
    """The target is 0.78; of eight evaluations in 8 s the fifth is the first above."""
    one, two = make_run(top1=0.8), make_run(workers=2, top1=0.8, seconds=8.0)
    slow = make_run(workers=4, scheme="sync_allreduce", top1=0.5, seconds=8.0)
    found = rows(made, [one, two, slow])
    assert found[two["key"]]["target"] == pytest.approx(0.78)
    assert found[two["key"]]["target_seconds"] == 5.0
    assert math.isnan(found[slow["key"]]["target_seconds"])


def test_every_point_has_its_row_in_order(made):
    runs = [make_run(seed=s) for s in (2, 0, 1)]
    assert list(points(made(runs))["key"]) == [run["key"] for run in runs]
