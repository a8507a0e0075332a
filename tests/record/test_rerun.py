"""`sweep.rerun` decides which points are done again."""

import pytest

from paceline.errors import SettingError
from paceline.record.rerun import Sweep

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


def test_another_word_names_those_that_are():
    with pytest.raises(SettingError, match=r"^sweep\.rerun: should be 'none', .* not 'some'$"):
        Sweep(jobs=1, rerun="some")
