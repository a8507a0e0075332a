import pytest

from paceline.report.page_tables import time_to_target
from tests.made_reports import make_run

ORIGINS = [
    (None, "two points of validation top-1 below the best mean of one worker (sync_allreduce "),
    ({"metric": "top1", "value": 0.85}, "a validation top-1 of 85 % that the study asks for. "),
    (
        {"metric": "top1", "below_baseline": 0.03},
        "3 points of validation top-1 below the best mean of one worker (sync_allreduce "
        "batch_size=32 workers=1), as the study asks. ",
    ),
]


@pytest.mark.parametrize(("target", "origin"), ORIGINS)
def test_the_caption_says_where_the_target_comes_from(findings, target, origin):
    table = time_to_target(findings([make_run(top1=0.9)], target=target))
    assert f"at or above the target, {origin}" in table.caption
