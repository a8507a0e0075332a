"""What studies say on accuracy, between and beyond the numbers of workers that they had."""

import dataclasses
import math

import pytest

from paceline.prediction.evidence import RULES, Observed, evidence_for, read_evidence

NETWORK = {"data": "images", "model": "network", "num_weights": 1000}
BUDGET = {"images": 6400, "epochs": 5, "batch_size": 32, "scheme": "sync_allreduce", "settings": ""}
RUNS = {"rate": "tuned", "workers": 4, "staleness": 0, "seeds": 8, "diverged": 0}
CHANGE = {"mean": -0.01, "low": -0.02, "high": 0.0}
ONE = Observed("planted", "0" * 64, **NETWORK, **BUDGET, **RUNS, **CHANGE)


def observed(**changes):
    return dataclasses.replace(ONE, **changes)


STALE = {"scheme": "async_parameter_server"}
ROWS = [
    ONE,
    observed(workers=16, mean=-0.03, low=-0.04, high=-0.02),
    observed(**STALE, staleness=3, mean=-0.02, low=-0.03, high=-0.01),
    observed(**STALE, workers=16, staleness=15, mean=-0.06, low=-0.07, high=-0.05),
    observed(rate=RULES[0], mean=-0.015, low=-0.03, high=0.0),
    observed(rate=RULES[0], workers=16, diverged=1, mean=math.nan, low=math.nan, high=math.nan),
    observed(rate=RULES[0], workers=64, mean=-0.05, low=-0.06, high=-0.04),
]
EVIDENCE = evidence_for(ROWS, "network", "images")


def test_at_a_number_of_workers_that_was_studied_its_change_is_given():
    for row in ROWS[:4]:
        found = EVIDENCE.change(row.scheme, row.rounds, row.staleness)
        assert found[:3] == pytest.approx((row.mean, row.low, row.high))


def test_between_two_numbers_of_workers_the_change_is_linear_in_the_logarithm():
    assert EVIDENCE.change("sync_allreduce", 25)[:3] == pytest.approx((-0.02, -0.03, -0.01))


def test_more_rounds_than_with_the_fewest_workers_change_as_much_as_these():
    for rounds in (50, 200, 10_000):
        assert EVIDENCE.change("sync_allreduce", rounds) == (-0.01, -0.02, 0)
    assert EVIDENCE.change("async_parameter_server", 50, 0.1) == (-0.02, -0.03, -0.01)


def test_what_was_not_studied_is_not_known():
    assert EVIDENCE.change("sync_allreduce", 11) is None
    assert EVIDENCE.change("gossip", 100) is None
    assert EVIDENCE.change("async_parameter_server", 100, 16) is None
    assert EVIDENCE.change("sync_allreduce", 100, 1) is None  # its runs had no staleness
    assert evidence_for([], "network", "images") is None


def test_the_worse_of_the_two_measures_counts():
    for rounds, staleness in ((12.5, 3), (200, 15)):
        found = EVIDENCE.change("async_parameter_server", rounds, staleness)
        assert found == pytest.approx((-0.06, -0.07, -0.05))


def test_what_follows_a_divergence_is_not_known():
    assert EVIDENCE.change("sync_allreduce", 50, rate=RULES[0]).mean == pytest.approx(-0.015)
    assert EVIDENCE.change("sync_allreduce", 45, rate=RULES[0]) is None


def test_the_network_and_data_that_are_asked_for_come_before_the_largest_training():
    others = [observed(model="other", workers=n) for n in (2, 4)]
    small = [observed(model="other", epochs=1)]
    assert evidence_for([*others, *ROWS, *small], "other", "images").observed == others
    assert evidence_for([*others, *ROWS], "unknown", "images").observed == ROWS
    assert evidence_for([*others, *ROWS], "other", "unknown").observed == ROWS


def test_the_package_knows_schemes_that_meet_and_schemes_that_do_not():
    evidence = evidence_for(read_evidence(), "resnet50", "ImageNet-1k")
    assert len(evidence.schemes) >= 6
    assert evidence.schemes["sync_parameter_server"] == ["scheme.backup_workers=1"]
    assert all(len(row.runs_digest) == 64 and row.seeds >= 3 for row in evidence.observed)
    for scheme in evidence.schemes:  # what was studied is worse with fewer rounds
        rows = [row for row in evidence.observed if (row.scheme, row.rate) == (scheme, "tuned")]
        found = [evidence.change(scheme, row.rounds, row.staleness) for row in rows]
        assert [each.mean for each in found] == pytest.approx([row.mean for row in rows])
