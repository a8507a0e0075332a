from paceline.analysis.comparison import FAULT
from paceline.report.findings import read_findings
from paceline.report.page_tables import page_tables
from tests.made_reports import fail, make_run, write_reports

AXES = ["scheme", "workers", "batch_size", "seed", FAULT]
ASYNC, SYNC = "async_parameter_server", "sync_allreduce"
SIGKILL = "worker 3: killed by SIGKILL"


def made(scheme, fault, seed, seconds=10.0, top1=0.8, **changes):
    more = {FAULT: fault, "dropped_samples": 0, "fault_samples": None, "fault_seconds": None}
    numbers = {"seconds": seconds, "test_top1": top1, "key": f"{scheme}{fault}{seed}"}
    return make_run(scheme, 4, 8, seed, **more, **numbers) | changes


def runs():
    for seed in range(3):
        yield made(SYNC, "none", seed)
        yield made(SYNC, "slow_worker", seed, seconds=30.0)
        ended = {"fault_samples": 1600 + seed, "fault_seconds": 1.0 + seed}
        yield fail(made(SYNC, "worker_killed", seed), reason=SIGKILL) | ended
        yield made(ASYNC, "none", seed)
        yield made(ASYNC, "slow_worker", seed, seconds=11.0, top1=0.79, dropped_samples=16)
        reason = "worker 3 was lost after 50 steps: killed by SIGKILL"
        lost = made(
            ASYNC,
            "worker_killed",
            seed,
            seconds=12.0,
            reason=reason,
            lost_workers='[{"worker": 3}]',
        )
        yield lost if seed else fail(lost) | ended


def test_what_goes_on_what_ends_and_what_is_lost(tmp_path):
    folder = write_reports(tmp_path / "made", list(runs()), axes=AXES)
    (table,) = (each for each in page_tables(read_findings(folder)) if each.name == "Faults")
    rows = {(row[0], row[2]): dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert len(rows) == 4
    ended, slow = rows[SYNC, "worker_killed"], rows[ASYNC, "slow_worker"]
    assert (ended["finished"], ended["images lost"]) == ("0 of 3", "1,601")
    assert (ended["seconds until it ended"], ended["reason"]) == ("3.00", SIGKILL)
    assert ended["seconds, ratio"] == ended["top-1 on test, points"] == "–"  # noqa: RUF001
    assert slow["seconds, ratio"].startswith("1.10 (")
    assert slow["top-1 on test, points"].startswith("-1.00 (")
    assert slow["images lost"] == "16"
    assert rows[ASYNC, "worker_killed"]["finished"] == "2 of 3"
