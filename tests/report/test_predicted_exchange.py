"""Seconds of exchange and staleness of paced processes beside what is predicted, by hand."""

import csv

import pytest

from paceline.analysis.tables import read_tables
from tests.made_reports import concluded, make_run, write_reports

COLUMNS = ("key", "kind", "half", "cluster", "images_per_second", "free_images_per_second")
COLUMNS += ("staleness_distance", "staleness_p")
# images/s for each seed; predicted; free; distance and p of each seed
PACED = {
    ("sync_allreduce", 2): ((400, 400), 500, 640, ("", ""), ("", "")),
    ("async_parameter_server", 2): ((512, 512), 500, 640, (0.1, 0.3), (0.5, 0.02)),
    ("async_parameter_server", 4): ((1200, 1200), 1210, 1280, (0.2, 0.2), (0.5, 0.4)),
}
ORDER = list(PACED)


def write_paced(folder):
    runs, rows = [], []
    for (scheme, workers), (rates, rate, free, distances, ps) in PACED.items():
        seeds = enumerate(zip(rates, distances, ps, strict=True))
        for seed, (observed, distance, p) in seeds:
            run = make_run(scheme, workers, 32, seed, images_per_second=observed, kind="paced")
            runs.append(run)
            rows.append((run["key"], "predicted", "", "made_profile", rate, free, distance, p))
    write_reports(folder, runs)
    with (folder / "predictions.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])
    return folder


def by_configuration(folder):
    table = concluded(read_tables(write_paced(folder / "made")), "exchange_n")
    return table.set_index(["scheme", "workers"]).loc[ORDER]


def test_exchange_is_what_a_step_takes_beyond_the_same_with_free_messages(tmp_path):
    """A step of all workers has 64 or 128 images: 0.1 s without messages."""
    table = by_configuration(tmp_path)
    assert list(table["exchange_observed"]) == pytest.approx([0.06, 0.025, 128 / 1200 - 0.1])
    predicted_ones = [0.028, 0.028, 128 / 1210 - 0.1]
    assert list(table["exchange_predicted"]) == pytest.approx(predicted_ones)
    assert list(table["exchange_error"]) == pytest.approx(
        [0.028 / 0.06 - 1, 0.12, -0.132231], abs=1e-5
    )
    assert list(table["exchange_verdict"]) == ["far", "near", "near"]


def test_staleness_is_apart_if_any_seed_is_so_improbable(tmp_path):
    """The least of two p is doubled: 0.04 and 0.8."""
    table = by_configuration(tmp_path)
    assert table["exchange_staleness_p"].isna().tolist() == [True, False, False]
    assert list(table["exchange_staleness_p"])[1:] == pytest.approx([0.04, 0.8])
    assert list(table["exchange_staleness_distance"])[1:] == pytest.approx([0.2, 0.2])
    assert list(table["exchange_staleness_verdict"])[1:] == ["apart", "alike"]


def test_paced_rates_are_near_within_ten_percent(tmp_path):
    table = by_configuration(tmp_path)
    assert list(table["rate_verdict"]) == ["far", "near", "near"]
