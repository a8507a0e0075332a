"""Which collective is recommended, by made-up seconds of exchanges."""

import json
import math
import re

import pytest

from paceline.analysis.exchanges import (
    NO_DIFFERENCE,
    analyse_exchanges,
    exchange_seconds,
    read_exchanges,
    recommendation,
)
from paceline.errors import SettingError
from paceline.report.exchange_page import report_exchanges
from tests.made_reports import tie, write_rows


def made_row(collective, turn, seconds, workers=2, **changes):
    return {
        "status": "finished",
        "reason": "",
        "kind": "measured",
        "key": f"{collective}{workers}",
        "cluster": "local",
        "collective": collective,
        "workers": workers,
        "num_bytes": 400,
        "turn": turn,
        "seconds": seconds,
        "predicted_seconds": 0.5,
        "bytes_sent": 800,
        "bytes_received": 800,
        "bytes_formula": 800,
        "hardware.cores": 2,
        "versions.torch": "2.15.0",
        "commit": "0123",
    } | changes


def made_rows(workers=2, **seconds):
    """A row for each turn: `made_rows(ring=[1.0, 1.1])`."""
    return [
        made_row(name, turn, value, workers)
        for name, values in seconds.items()
        for turn, value in enumerate(values)
    ]


def failed(collective, reason):
    return made_row(collective, 0, None, status="failed", reason=reason, bytes_sent=None)


@pytest.fixture
def written(tmp_path):
    """A folder of these exchanges: `written(rows)`."""

    def write(rows, facets=()):
        about = {"study": "made", "question": "Which?", "facets": list(facets)}
        (tmp_path / "study.json").write_text(json.dumps(about))
        write_rows(tmp_path / "exchanges.csv", list(rows[0]), rows)
        return tie(tmp_path)

    return write


def recommended(folder):
    return recommendation(read_exchanges(folder)).to_dict("records")


def test_the_fewest_seconds_are_first_if_the_ratio_excludes_one(written):
    slow = {"ring": [2.0, 2.2, 1.8], "tree": [4.0, 4.4, 3.6]}
    (row,) = recommended(written(made_rows(native=[1.0, 1.1, 0.9], **slow)))
    assert (row["collective"], row["runner_up"], row["verdict"]) == ("native", "ring", "first")
    assert (row["ratio_mean"], row["ratio_n"]) == (pytest.approx(2), 3)
    assert row["ratio_low"] == pytest.approx(2)


def test_an_interval_that_contains_one_shows_no_difference(written):
    rows = made_rows(native=[1.0, 1.2, 1.0], ring=[1.1, 1.0, 1.2])
    (row,) = recommended(written(rows))
    assert (row["collective"], row["verdict"]) == ("native", NO_DIFFERENCE)
    assert row["ratio_low"] < 1 < row["ratio_high"]


@pytest.mark.parametrize(("seconds", "runner_up"), [({}, ""), ({"ring": [9.0]}, "ring")])
def test_one_turn_or_one_collective_shows_no_difference(written, seconds, runner_up):
    (row,) = recommended(written(made_rows(native=[1.0], **seconds)))
    assert (row["runner_up"], row["verdict"]) == (runner_up, NO_DIFFERENCE)


def test_each_cluster_and_number_of_workers_has_a_recommendation(written):
    rows = made_rows(2, ring=[1.0, 1.0], tree=[2.0, 2.0])
    rows += made_rows(4, ring=[3.0, 3.0], tree=[2.0, 2.0])
    rows = [row | {"cluster.link.bandwidth": ""} for row in rows]
    rows += [row | {"cluster": "nodes", "cluster.link.bandwidth": 5.0} for row in rows[:4]]
    folder = written(rows, ["cluster.link.bandwidth"])
    assert [row["collective"] for row in recommended(folder)] == ["ring", "tree", "ring"]


def test_seconds_are_means_over_turns_beside_the_prediction(written):
    (row,) = exchange_seconds(read_exchanges(written(made_rows(ring=[0.3, 0.5])))).to_dict(
        "records"
    )
    assert (row["seconds_mean"], row["seconds_n"]) == (pytest.approx(math.sqrt(0.3 * 0.5)), 2)
    assert row["updates_per_second"] == pytest.approx(1 / math.sqrt(0.3 * 0.5))
    assert row["error"] == pytest.approx(0.5 / math.sqrt(0.3 * 0.5) - 1)


def test_the_page_says_it_with_numbers_and_names_what_failed(written):
    rows = [*made_rows(native=[1.0, 1.0], ring=[2.0, 2.6]), failed("tree", "worker 1: timed out")]
    folder = written(rows)
    analyse_exchanges(folder)
    page = report_exchanges(folder).read_text()
    assert "native is first" not in page  # no difference is shown by the interval of two turns
    assert "2.28 (0.43 to 12.08), n = 2" in re.sub("<br>|<[^>]+>", " ", page).replace("  ", " ")
    assert "tree, 2 workers, 400 bytes, local (measured) failed: worker 1: timed out" in page
    assert '<span class="kind">predicted</span> by a model' in page
    assert '<figure id="figure-exchanges">' in page
    assert (folder / "figures/exchanges.svg").is_file()


def test_a_page_without_predictions_or_finished_exchanges(written):
    folder = written([failed("tree", "timed out") | {"predicted_seconds": ""}])
    analyse_exchanges(folder)
    assert "No exchange has finished" in report_exchanges(folder).read_text()


def test_exchanges_that_were_not_measured(tmp_path):
    with pytest.raises(SettingError, match="first: paceline sweep"):
        read_exchanges(tmp_path)


def test_tables_are_written_again_in_the_same_bytes(written):
    folder, contents = written([made_row("ring", turn, 1.0) for turn in range(3)]), []
    for _ in range(2):
        analyse_exchanges(folder)
        contents.append({each.name: each.read_bytes() for each in folder.rglob("*.csv")})
    assert contents[0] == contents[1]
    assert len(contents[0]) == 3
