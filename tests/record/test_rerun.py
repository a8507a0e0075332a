"""`sweep.rerun` decides which points are done again."""

import pytest

from paceline.record.rerun import Sweep
from paceline.study.compose import composed
from tests.tiny import REPOSITORY

RECORDS = {
    "missing": None,
    "finished": {"status": "finished", "source_digest": "now"},
    "diverged": {"status": "diverged", "source_digest": "now"},
    "failed": {"status": "failed", "source_digest": "now"},
    "old": {"status": "finished", "source_digest": "then"},
    "of other data": {"status": "finished", "source_digest": "now", "data_digest": "then"},
}


@pytest.mark.parametrize(
    ("rerun", "done_again"),
    [
        ("none", {"missing"}),
        ("failed", {"missing", "failed"}),
        ("stale", {"missing", "old", "of other data"}),
        ("all", set(RECORDS)),
    ],
)
def test_points_done_again(rerun, done_again):
    sweep = Sweep(jobs=1, rerun=rerun)
    found = {n: sweep.needs_run(r, "now", "data_digest" in (r or {})) for n, r in RECORDS.items()}
    assert {n for n, done in found.items() if done} == done_again


def test_auto_jobs_follow_from_the_machine(monkeypatch):
    """On a virtual clock a point keeps one core busy; real processes are measured by themselves."""
    monkeypatch.setattr("paceline.record.point_config.num_cores", lambda: 12)
    for settings, jobs in (
        (["cluster=virtual"], 12),
        (["cluster=virtual", "cluster.threads_per_worker=5"], 2),
        (["cluster=virtual", "cluster.threads_per_worker=16"], 1),
        (["cluster=local"], 1),
    ):
        found = composed([*settings, "sweep.jobs=auto"], REPOSITORY)
        assert found.sweep.jobs == jobs
        assert found.key == composed([*settings, "sweep.jobs=3"], REPOSITORY).key
