"""Predictions of published numbers: units and verdicts by hand, and the committed table."""

import csv
from types import SimpleNamespace

import pytest

from paceline.errors import SettingError
from paceline.prediction.published import (
    FAR,
    IMAGES,
    Entry,
    Judged,
    entries,
    judge,
    published_rows,
    summary,
)
from tests.tiny import CONF

ROOT = CONF.parent
STEADY = ["cluster=virtual", "workers=4", "batch_size=8", "cluster.step_seconds=0.5"]  # 64 images/s
KNOWN = published_rows(ROOT)


def row(unit, value="100", verified="yes"):
    return {"id": "made", "value": value, "unit": unit, "verified": verified}


def judged(unit, value="100", verified="yes", settings=STEADY, **entry):
    entry = Entry(row="made", settings=list(settings), steps=20, **entry)
    return judge(entry, {"made": row(unit, value, verified)}, ROOT)


def test_a_rate_and_its_error():
    found = judged("images/s", "80")
    assert found.predicted == pytest.approx(64)
    assert found.error == pytest.approx(-0.2)
    assert (found.verdict, found.naive, found.naive_error) == ("judged", None, None)


def test_times_are_of_passes_over_the_data():
    assert judged("h", epochs=2).predicted == pytest.approx(2 * IMAGES / 64 / 3600)
    assert judged("min", epochs=2).predicted == pytest.approx(2 * IMAGES / 64 / 60)
    assert judged("days", epochs=2).predicted == pytest.approx(2 * IMAGES / 64 / 86400)


def test_updates_are_of_all_workers():
    assert judged("1/s").predicted == pytest.approx(2)


def test_a_speed_up_is_one_of_images_or_of_times():
    alone = [*STEADY, "workers=1"]
    assert judged("x", baseline=alone).predicted == pytest.approx(4)
    passes = {"epochs": 8, "baseline_epochs": 6}
    assert judged("x", baseline=alone, **passes).predicted == pytest.approx(3)


def test_naive_is_as_many_accelerators_that_never_wait():
    """45.2 images/s of one K20, 32 times."""
    (entry,) = (e for e in entries(ROOT) if "32gpu-b1024-speedup" in e.row and "table3" in e.row)
    found = judge(entry, KNOWN, ROOT)
    assert found.naive == pytest.approx(32 * 64 / 72, rel=1e-3)
    assert found.verdict == "same runs"


def test_what_is_not_verified_is_not_judged():
    assert judged("images/s", verified="no").verdict == "not verified"


def test_assumed_settings_and_other_forms_of_a_number_are_not_judged():
    assert judged("images/s", assumed="the batch").verdict == "settings assumed"
    assert judged("images/s", same_as="another").verdict == "same runs"


def test_nothing_judged_is_said():
    assert summary([judged("images/s", verified="no")]) == "None is judged."


def test_what_went_into_the_profile_is_calibrated():
    name = "C/table1-100-epochs/alexnet/data-parallel-sync-2gpu-time-100-epochs"
    (entry,) = (entry for entry in entries(ROOT) if entry.row == name)
    assert judge(entry, KNOWN, ROOT).verdict == "calibrated"


@pytest.mark.parametrize(
    ("unit", "setting"), [("h", "prediction"), ("x", "prediction"), ("%", "prediction")]
)
def test_a_number_that_cannot_be_predicted_is_named(unit, setting):
    with pytest.raises(SettingError, match="made is in") as error:
        judged(unit)
    assert error.value.setting == setting


def test_an_unknown_row_is_named():
    with pytest.raises(SettingError, match="has no nothing"):
        judge(Entry(row="nothing", settings=[]), KNOWN, ROOT)


def test_a_summary_by_hand():
    """Errors 8, 20 and 40 %; naive ones 40 and 60 %, of the first two."""

    def made(predicted, naive=None, verdict="judged"):
        return Judged(SimpleNamespace(), row("x"), predicted, None, naive, verdict, ())

    found = [made(108, 140), made(80, 160), made(140), made(900, 900, "calibrated")]
    assert summary(found) == (
        "**3 judged: median error 20 %, worst 40 %; 1 within 10 %, 2 within 25 %.** Of 2 that N "
        "times one accelerator also predicts, the median error is 14 % against 50 %: skill 0.72."
    )


def test_an_interval_counts_what_it_covers():
    def made(target, interval):
        return Judged(SimpleNamespace(), row("x", target), 100.0, interval, 130.0, "judged", ())

    text = summary([made("90", (80, 120)), made("100", (90, 110)), made("150", (80, 120))])
    assert text.endswith("2 of 3 are inside of 90 % of the draws.")


def test_the_interval_of_a_time_has_the_lower_end_first():
    assumed = ["+cluster.assumed.step_seconds=[0.4,0.6]"]
    entry = Entry(row="made", settings=[*STEADY, *assumed], steps=5, epochs=1)
    found = judge(entry, {"made": row("h")}, ROOT, draws=8)
    low, high = found.interval
    assert IMAGES / 80 / 3600 < low < found.predicted < high < IMAGES / 53 / 3600


def committed():
    with (ROOT / "reports/predictions/predictions.csv").open() as file:
        return list(csv.DictReader(file))


def test_the_committed_table_has_every_entry_and_explains_what_is_far_off():
    assert [each["row"] for each in committed()] == [entry.row for entry in entries(ROOT)]
    explained = {entry.row for entry in entries(ROOT) if entry.error_from}
    assert {each["row"] for each in committed() if abs(float(each["error"])) > FAR} <= explained


@pytest.mark.parametrize(
    "found",
    [each for each in committed() if "gpu-b32-" in each["row"] or "server-4gpu" in each["row"]],
    ids=lambda found: found["row"],
)
def test_the_committed_table_is_what_the_profiles_say_today(found):
    (entry,) = (entry for entry in entries(ROOT) if entry.row == found["row"])
    today = judge(entry, KNOWN, ROOT)
    assert today.predicted == pytest.approx(float(found["predicted"]), rel=1e-4)
    assert today.verdict == found["verdict"]
    assert " ".join(today.rows) == found["inputs"]
