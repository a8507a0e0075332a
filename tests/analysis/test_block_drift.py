"""Throughput counts in blocks that the machine did not drift in, and against their reference."""

import math

import pytest

from paceline.analysis.analyse import analyse, read_conclusion
from paceline.analysis.cautions import cautions
from paceline.analysis.configuration import matching
from paceline.analysis.points import points
from paceline.analysis.tables import read_tables
from tests.made_reports import concluded, fail, make_run, write_reports

SCHEMES = ("sync_allreduce", "async_parameter_server")
FACTORS = {("sync_allreduce", 2): 1.5, ("async_parameter_server", 1): 0.9}
FACTORS |= {("async_parameter_server", 2): 1.8}


def block(seed, speed=1000.0, drift=0.0, minute=None, factors=FACTORS):
    """A block as collected: the reference, three other configurations, the reference again."""
    clock = 10 * seed if minute is None else minute
    about = {"seed": seed, "batch_size": 32, "wall_seconds": 60.0}
    rows = [
        make_run(scheme, workers, repeat=0, images_per_second=speed * factor, **about)
        for (scheme, workers), factor in ({("sync_allreduce", 1): 1.0} | factors).items()
    ]
    rows.append(make_run(repeat=1, images_per_second=speed * (1 + drift), **about))
    for place, row in enumerate(rows):
        row["started"] = f"2026-01-02T03:{clock + place:02d}:00+00:00"
        row["key"] += str(row["repeat"])
    return rows


def tables_of(folder, *made):
    return read_tables(write_reports(folder / "made", [row for each in made for row in each]))


def test_a_block_says_when_it_ran_and_how_its_reference_drifted(tmp_path):
    tables = tables_of(tmp_path, block(0, drift=0.14), block(1, speed=500, drift=-0.02))
    first, second = (row for _, row in tables.blocks.iterrows())
    assert first["started"] == "2026-01-02T03:00:00+00:00"
    assert (first["hour"], first["minutes"]) == (3, 5)
    assert (first["first"], first["last"]) == (1000, pytest.approx(1140))
    assert first["drift"] == pytest.approx(0.14)
    assert second["drift"] == pytest.approx(-0.02)
    assert set(tables.blocks["verdict"]) == {"kept"}


@pytest.mark.parametrize("drift", [0.151, -0.151])
def test_a_block_that_drifted_is_dropped_from_throughput_alone(tmp_path, drift):
    tables = tables_of(tmp_path, block(0), block(1, drift=drift), block(2))
    assert list(tables.blocks["verdict"]) == ["kept", "dropped: drift", "kept"]
    assert set(concluded(tables)["images_per_second_n"]) == {2}
    assert set(concluded(tables)["top1_n"]) == {3}
    assert set(concluded(tables, "baseline")["speedup_n"]) == {2}
    assert set(concluded(tables, "reference")["reference_speed_ratio_n"]) == {2}
    assert set(concluded(tables, "reference")["reference_top1_difference_n"]) == {3}
    speedups = points(tables)["speedup"]
    assert list(speedups.isna()) == [row == 1 for row in tables.runs["seed"]]


def test_a_study_of_which_all_blocks_drifted_still_has_its_accuracies(tmp_path):
    apart = {("async_parameter_server", 2): 1.8}  # compared with one worker of another scheme
    tables = tables_of(tmp_path, *(block(seed, drift=0.2, factors=apart) for seed in (0, 1)))
    analyse(tmp_path / "made")
    assert set(concluded(tables)["images_per_second_n"]) == {0}
    assert set(concluded(tables, "baseline")["speedup_n"]) == {0}
    assert set(concluded(tables)["top1_n"]) == {2}


def test_a_block_without_both_references_is_dropped(tmp_path):
    without_last, lost_first = block(0)[:-1], block(1)
    lost_first[0] = fail(lost_first[0])
    tables = tables_of(tmp_path, without_last, lost_first, block(2))
    missing = "dropped: a reference is missing"
    assert list(tables.blocks["verdict"]) == [missing, missing, "kept"]


def test_a_block_that_was_interrupted_is_dropped(tmp_path):
    rows = block(0)
    rows[-1]["started"] = "2026-01-02T03:59:00+00:00"
    assert list(tables_of(tmp_path, rows, block(1)).blocks["verdict"]) == [
        "dropped: interrupted",
        "kept",
    ]


def test_repeats_are_no_points(tmp_path):
    tables = tables_of(tmp_path, block(0), block(1))
    assert len(tables.runs) == 8
    assert len(tables.repeats) == 2
    assert tables.axes == ["scheme", "batch_size", "workers"]


def test_what_all_runs_of_a_block_share_cancels_in_its_ratios(tmp_path):
    """Blocks of very unlike speed, and of no drift, agree to the digit."""
    made = [block(seed, speed) for seed, speed in enumerate((1000, 300, 2000))]
    table = concluded(tables_of(tmp_path, *made), "block_ratio_n")
    found = {(row["scheme"], row["workers"]): row for _, row in table.iterrows()}
    assert set(found) == set(FACTORS)
    for configuration, factor in FACTORS.items():
        row = found[configuration]
        ends = (row["block_ratio_low"], row["block_ratio_mean"], row["block_ratio_high"])
        assert ends == pytest.approx((factor, factor, factor))
        assert row["block_ratio_n"] == 3


def test_a_ratio_is_over_the_mean_of_both_references_and_geometric_over_blocks(tmp_path):
    """Over means of 1020 and 990: 1.5 / 1.02 and 1.5 / 0.99, and t = 12.7 with one degree."""
    table = concluded(
        tables_of(tmp_path, block(0, drift=0.04), block(1, drift=-0.02)), "block_ratio_n"
    )
    row = matching(table, {"scheme": "sync_allreduce", "workers": 2}).iloc[0]
    logs = [math.log(1.5 / 1.02), math.log(1.5 / 0.99)]
    assert row["block_ratio_mean"] == pytest.approx(math.exp(sum(logs) / 2))
    half = 12.7062047 * abs(logs[0] - logs[1]) / 2
    assert row["block_ratio_high"] / row["block_ratio_mean"] == pytest.approx(math.exp(half))


def test_a_study_without_blocks_has_neither_table_and_keeps_its_points(tmp_path):
    tables = tables_of(tmp_path, [make_run(workers=w, seed=s) for w in (1, 2) for s in (0, 1)])
    assert tables.blocks.empty
    assert concluded(tables, "block_ratio_n").empty
    assert tables.runs["images_per_second"].notna().all()


def test_both_tables_are_written(tmp_path):
    folder = write_reports(tmp_path / "made", [*block(0), *block(1, drift=0.2)])
    analyse(folder)
    written = read_conclusion(folder, "blocks")
    assert list(written["verdict"]) == ["kept", "dropped: drift"]
    assert read_conclusion(folder, "configurations")["block_ratio_n"].count() == 3


def cautioned(tables, what):
    return [row for _, row in matching(cautions(tables), {"what": what}).iterrows()]


def test_measured_points_are_of_some_hours_of_one_machine(tmp_path):
    made = [block(0, minute=50), block(1, minute=5)]
    for row in made[1]:
        row["started"] = row["started"].replace("T03", "T05")
    (row,) = cautioned(tables_of(tmp_path, *made), "one_machine")
    assert (row["name"], row["value"]) == ("A Made-up Processor, 4 cores", "2")
    assert row["started"] == "2026-01-02T03:50:00+00:00"
    assert row["minutes"] == 79  # 03:50 to 05:09


def test_dropped_blocks_are_said(tmp_path):
    (row,) = cautioned(tables_of(tmp_path, block(0), block(1, drift=0.171)), "dropped")
    assert (row["points"], row["of"]) == (1, 2)
    assert row["value"] == "block 1: its last run was 17.1 % faster"
    assert not cautioned(tables_of(tmp_path, block(0), block(1)), "dropped")


def test_a_super_linear_speed_up_is_said(tmp_path):
    """Twice as many workers, 2.2 times the images/s: the interval need not exclude it."""
    factors = FACTORS | {("sync_allreduce", 2): 2.2}
    made = [block(0, factors=factors), block(1, factors=FACTORS | {("sync_allreduce", 2): 2.1})]
    (row,) = cautioned(tables_of(tmp_path, *made), "super_linear")
    assert (row["points"], row["of"]) == (1, 2)
    assert row["value"] == "sync_allreduce, 2 workers, batch_size 32: 107 %"


def test_a_little_above_is_super_linear_beyond_its_interval_alone(tmp_path):
    def made(*factors):
        each = [FACTORS | {("sync_allreduce", 2): factor} for factor in factors]
        return [block(seed, factors=one) for seed, one in enumerate(each)]

    assert cautioned(tables_of(tmp_path, *made(2.04, 2.04)), "super_linear")
    assert not cautioned(tables_of(tmp_path, *made(2.0, 2.08)), "super_linear")


def test_a_drift_of_as_much_as_is_allowed_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("paceline.analysis.block_drift.MOST", 0.125)
    tables = tables_of(tmp_path, block(0, drift=0.125), block(1, drift=-0.125), block(2, drift=0.2))
    assert list(tables.blocks["verdict"]) == ["kept", "kept", "dropped: drift"]
