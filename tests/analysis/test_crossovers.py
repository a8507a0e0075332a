"""Crossovers of planted schemes: at 4 workers one is behind, at 16 it is ahead."""

import math

import pytest

from paceline.analysis.crossovers import crossovers
from paceline.analysis.tables import read_tables
from tests.made_decisions import arm, write_decided


def found(folder, runs, **about):
    return crossovers(read_tables(write_decided(folder, runs, **about)))


def worlds(*, gossip, mixed=(501, 401), reference=(301, 201)):
    """Runs at 4 and 16 workers, with the time at which those of each scheme cross."""
    schemes = {"sync_allreduce": reference, "gossip": gossip, "mixed": mixed}
    return [
        run
        for scheme, times in schemes.items()
        for workers, time in zip((4, 16), times, strict=True)
        for run in arm(scheme, time, 0.9, workers=workers)
    ]


def test_a_scheme_is_ahead_from_between_two_numbers_of_workers(tmp_path):
    """Log-times differ by 0.25 and by -0.51: a third of the way from log 4 to log 16."""
    table = found(tmp_path / "made", worlds(gossip=(401, 101))).set_index("scheme")
    row = table.loc["gossip"]
    way = math.log(415 / 315) / (math.log(415 / 315) + math.log(215 / 115))
    assert row["ahead_from"] == pytest.approx(4 * 4**way, rel=0.02)
    assert 4 < row["ahead_from_low"] < row["ahead_from"] < row["ahead_from_high"] < 16
    assert (row["least"], row["most"], row["reference"]) == (4, 16, "sync_allreduce")
    assert table.loc["mixed"]["ahead_from"] == math.inf
    assert table.loc["mixed"]["nowhere"] == 1


def test_a_scheme_that_is_ahead_at_every_number_has_no_crossover(tmp_path):
    row = found(tmp_path / "made", worlds(gossip=(201, 101))).set_index("scheme").loc["gossip"]
    assert (row["ahead_from"], row["everywhere"]) == (0, 1)


def test_numbers_of_workers_at_which_a_run_does_not_get_there_are_left_out(tmp_path):
    """Of two numbers of workers one is left, in which nothing crosses."""
    table = found(tmp_path / "made", worlds(gossip=(401, None), mixed=(501, 201)))
    assert list(table["scheme"]) == ["mixed"]
    nobody = worlds(gossip=(401, 201), mixed=(501, 201), reference=(301, None))
    assert found(tmp_path / "nobody", nobody).empty


def test_without_a_target_or_a_scale_there_is_none(tmp_path):
    assert found(tmp_path / "one", worlds(gossip=(401, 101)), target=None).empty
    four = [run for run in worlds(gossip=(401, 101)) if run["workers"] == 4]
    assert found(tmp_path / "four", four).empty
