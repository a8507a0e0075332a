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
}


@pytest.mark.parametrize(
    ("rerun", "done_again"),
    [
        ("none", {"missing"}),
        ("failed", {"missing", "failed"}),
        ("stale", {"missing", "old"}),
        ("all", set(RECORDS)),
    ],
)
def test_points_done_again(rerun, done_again):
    sweep = Sweep(jobs=1, rerun=rerun)
    assert {n for n, record in RECORDS.items() if sweep.needs_run(record, "now")} == done_again


def test_another_word_names_those_that_are():
    with pytest.raises(SettingError, match=r"^sweep\.rerun: should be 'none', .* not 'some'$"):
        Sweep(jobs=1, rerun="some")
