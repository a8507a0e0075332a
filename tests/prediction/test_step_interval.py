"""The shares of a chip's peak and bandwidth that training reaches, and the interval of the rule."""

import math

import numpy as np
import pytest

from benchmarks import step_times
from benchmarks.step_times import TRAFFICS, UTILISATIONS, Timed
from tests.made_records import rows_of


def planted(utilisation, traffic, factors):
    """Networks of three kinds, whose images/s are these factors times those of the rule."""
    random, found = np.random.default_rng(0), []
    for kind, times in zip("abc", factors, strict=True):
        for arithmetic, memory in random.uniform(1e-4, 1e-3, (4, 2)).tolist():
            made = Timed(kind, "rtx_3090", "16-mixed", 1.0, arithmetic, memory, 0.0)
            rate = times * made.predicted(utilisation, traffic)
            found.append(Timed(kind, "rtx_3090", "16-mixed", rate, arithmetic, memory, 0.0))
    return found


def test_planted_shares_are_found_and_a_kind_is_judged_by_the_others():
    exact = planted(0.45, 0.2, (1, 1, 1))
    u, t = step_times.best_shares(step_times.errors_by_shares(exact), [each.kind for each in exact])
    assert (UTILISATIONS[u], TRAFFICS[t]) == (0.45, 0.2)
    errors = step_times.left_out_errors(planted(0.45, 0.2, (1, 1, 1.3)))
    assert errors["kind", "c"] == pytest.approx([math.log(1.3)] * 4)
    assert {of for _, of in errors} == {"a", "b", "c"}


def test_published_rates_have_a_chip_with_a_peak_in_their_precision():
    rows = rows_of(step_times.ROOT / "papers/step_times.csv")
    assert len(rows) > 250
    for row in rows:
        assert row["precision"] in step_times.chip_of(row["chip"]).peak, row
        assert float(row["images_per_second"]) > 0, row
        assert row["source"], row
