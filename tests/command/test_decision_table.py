"""The decisions of a study in the terminal are those of its page."""

import io

import pytest
from rich.console import Console

from paceline.command.studies_view import decision_table
from tests.made_decisions import AXES, arm, made_family, made_tuning, write_decided
from tests.made_reports import write_page, write_rows


@pytest.fixture
def printed(tmp_path):
    """The lines of the table of these runs: `printed(runs)`."""

    def lines(runs, tuning=(), **about):
        folder = write_decided(tmp_path / "made", runs, **about)
        if tuning:
            write_rows(folder / "tuning.csv", list(tuning[0]), tuning)
        write_page(folder)
        console = Console(width=200, record=True, file=io.StringIO())
        console.print(decision_table(folder / "tables/decision.csv"))
        return [line.split() for line in console.export_text().splitlines() if line.strip()]

    return lines


def test_nothing_is_said_against_a_scheme_at_the_edge_of_its_search(printed):
    edges = {"async_parameter_server": "lowest effective_rate", "mixed": "lowest effective_rate"}
    schemes = {run["scheme"] for run in made_family()}
    tuning = [row for workers in (4, 1) for row in made_tuning(made_family(), edges, workers)]
    text = [" ".join(line) for line in printed(made_family(), tuning)]
    judged = [line for line in text if "not judged" in line]
    assert {name for name in schemes for line in judged if name in line} == set(edges)
    assert not any("never" in line for line in text)
    assert any("sync_allreduce" in line and "behind" in line for line in text)


def test_split_workers_share_the_situation_of_their_processes(printed):
    shards, split = "model.shards", "model.split"
    runs = [run | {shards: 1, split: "auto"} for run in arm("sync_allreduce", 801, 0.9, workers=1)]
    runs += [run | {shards: 1, split: "auto"} for run in arm("sync_allreduce", 401, 0.9, 2)]
    divided = arm("sync_allreduce", 201, 0.9, workers=1)
    runs += [run | {shards: 2, split: "auto", "key": f"{run['key']}d"} for run in divided]
    head, _, *lines = printed(runs, axes=[*AXES, shards, split])
    assert head[:3] == ["processes", "model.shards", "workers"]
    two = lines[[line[0] for line in lines].index("2") :]
    assert two[0][:4] == ["2", "2", "1", "best"]
    assert two[1][:3] == ["1", "2", "behind"]  # of the same situation, which is not said again


def test_points_are_those_to_one_worker_where_one_ran(printed):
    head, _, *lines = printed(made_family())
    assert "points to one worker" in " ".join(head)
    mixed = next(" ".join(line) for line in lines if "mixed" in line)
    assert "-5.00 (" in mixed
    head, _, *lines = printed([run for run in made_family() if run["workers"] > 1])
    assert "points to the reference" in " ".join(head)
