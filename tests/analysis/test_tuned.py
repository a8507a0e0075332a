"""What tuning says of winners at an edge."""

import pytest

from paceline.analysis.searches import best_trials, edge_of
from paceline.analysis.tables import read_tables
from paceline.record.rows import TUNING
from tests.made_reports import make_run, write_reports, write_rows

SEARCHES = {100: [0.5, 0.9, 0.7], 101: [0.8, 0.6, None]}  # None: diverged


@pytest.fixture
def tuned(tmp_path):
    """Tables of a study with these rows of tuning.csv: `tuned(rows)`."""

    def write(rows):
        axes = ["scheme", "workers", "training.rate", "seed"]
        runs = [make_run(**{"training.rate": rate}, key=rate) for rate in ("by_rule", "tuned")]
        folder = write_reports(tmp_path / "made", runs, axes=axes)
        write_rows(folder / "tuning.csv", ["key", "scheme", "workers", *TUNING], rows)
        return read_tables(folder)

    return write


def trials(workers=4, edge="", searches=SEARCHES):
    """Rows of a configuration; test top-1 is half that of validation, the last is chosen."""
    rows = [
        {
            "key": f"{workers}-{seed}-{index}",
            "scheme": "gossip",
            "workers": workers,
            "seed": seed,
            "lr": 0.1 + index,
            "momentum": 0.5,
            "top1": top1,
            "test_top1": top1 and top1 / 2,
            "status": "diverged" if top1 is None else "finished",
            "chance": 0.1,
            "chosen": "false",
            "at_edge": "",
        }
        for seed, scores in searches.items()
        for index, top1 in enumerate(scores)
    ]
    rows[-1] |= {"chosen": "true", "at_edge": edge}
    return rows


def test_nothing_is_said_against_a_configuration_whose_best_lies_at_an_edge(tuned):
    waits = [row | {"chosen": "false"} for row in trials(workers=16)]
    tables = tuned([*trials(), *trials(workers=8, edge="lowest learning rate"), *waits])
    said = {
        (rate, workers): edge_of(
            tables, {"scheme": "gossip", "workers": workers, "training.rate": rate}
        )
        for rate in ("tuned", "by_rule")
        for workers in (4, 8, 16)
    }
    assert {key: edge for key, edge in said.items() if edge} == {
        ("tuned", 8): "lowest learning rate",
        ("tuned", 16): "tuning has not ended",
    }


def test_without_tuning_there_is_no_edge(tuned):
    tables = tuned([])
    assert edge_of(tables, {"scheme": "gossip", "workers": 4}) == ""
    assert best_trials(tables).empty
