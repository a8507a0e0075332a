"""What each number of workers costs in accuracy."""

import math

from paceline.analysis.searches import tuning_axes
from paceline.report.answer import answers
from paceline.report.findings import read_findings
from paceline.report.page_tables import rows_at_scale, scale_table, verdict_of
from tests.made_decisions import AXES, arm, made_tuning, write_decided
from tests.made_reports import fail, write_rows

SCHEMES = ("sync_allreduce", "gossip")


def study(folder, edges=(), worst=0.85, tuned=""):
    """Findings of 2 and 8 workers: 2 lose a tenth of a point, and 8 more than the margin."""
    runs = arm("sync_allreduce", 801, 0.9, workers=1)
    for workers, top1 in ((2, 0.899), (8, worst)):
        for scheme in SCHEMES:
            own = arm(scheme, 301, top1, workers=workers)
            runs += [run | {"lr": 0.1 * workers, "updates": 1000 // workers} for run in own]
    write_decided(folder, runs, axes=AXES)
    rows = [row for workers in (1, 2, 8) for row in made_tuning(runs, dict(edges), workers)]
    if tuned:
        rows = [row | {"own": f"scheme.{tuned}"} for row in rows]
    write_rows(folder / "tuning.csv", list(rows[0]), rows)
    return read_findings(folder)


def test_schemes_with_another_budget_than_one_worker_are_left_out(tmp_path):
    epochs = "training.epochs"
    runs = arm("sync_allreduce", 801, 0.9, workers=1, **{epochs: 5})
    for workers, budget in ((2, 5), (8, 5), (8, 10)):
        for scheme in SCHEMES:
            own = arm(scheme, 301, 0.85, workers=workers, **{epochs: budget})
            runs += [run | {"key": f"{run['key']}{budget}"} for run in own]
    findings = read_findings(write_decided(tmp_path / "made", runs, axes=[*AXES, epochs]))
    assert list(rows_at_scale(findings)[epochs]) == [5, 5, 5, 5]


def test_a_number_of_workers_without_a_finished_run_is_not_within_the_margin(tmp_path):
    runs = arm("sync_allreduce", 801, 0.9, workers=1)
    for workers in (2, 8):
        runs += arm("sync_allreduce", 301, 0.9, workers=workers)
        own = arm("gossip", None, 0.9, workers=workers)
        lost = own if workers == 8 else own[:1]
        status = "untrained" if workers == 8 else "diverged"
        runs += [fail(run, status, "chance") | {"top1": 0.1} for run in lost] + own[len(lost) :]
    findings = read_findings(write_decided(tmp_path / "made", runs))
    verdicts = rows_at_scale(findings).set_index(["scheme", "workers"])["verdict"]
    assert dict(verdicts) == {
        ("sync_allreduce", 2): "within",
        ("sync_allreduce", 8): "within",
        ("gossip", 2): "some_diverged",
        ("gossip", 8): "all_diverged",
    }


def test_the_table_has_the_settings_that_were_found(tmp_path):
    findings = study(tmp_path / "made", tuned="period=4")
    assert "own" not in tuning_axes(findings.tables)
    table = scale_table(findings)
    assert len(table.rows) == 4
    cells = dict(zip(table.columns, table.rows[1], strict=True))
    assert (cells["scheme"], cells["workers"], cells["learning rate"]) == ("all-reduce", "8", "0.8")
    assert cells["top-1 minus that of one worker, points"].startswith("-5.00 (")
    assert cells["top-1 minus that of one worker, points"].endswith("), n = 4")
    assert cells["compared with one worker"] == "lower"
    assert cells["own setting"] == "4 steps between means"
    assert cells["updates of a run"] == "125"
    uses = [each.use for each in answers(findings) if each.use]
    assert uses
    assert all(use.endswith(" (4 steps between means)") for use in uses)


def test_without_an_interval_or_with_a_rate_at_an_edge_nothing_is_judged():
    row = {"n_diverged": 0, "n_finished": 1, "at_edge": ""}
    row |= {"one_worker_top1_difference_low": math.nan, "one_worker_within_margin": 1}
    assert verdict_of(row) == "unknown"
    assert verdict_of(row | {"at_edge": "lowest learning rate"}) == "at_edge"
