"""A sweep of exchanges: real processes, a row for each turn, and no exchange measured twice."""

from argparse import Namespace
from contextlib import chdir

import pytest
import yaml

from paceline.cli import command
from paceline.cluster.supervisor import ProcessFailure
from paceline.command.sweep_command import print_plan
from paceline.errors import SettingError
from paceline.run.exchange_turns import Exchanged
from paceline.study import exchange_study
from paceline.study.study_points import study_points
from paceline.study.sweep import checked_study
from tests.made_records import rows_of

COLLECTIVES = "hierarchical,multicolor,native,parameter_server,ring,tree"
LENGTH = 751  # numbers, which no number of workers divides
EXCHANGE = {"megabytes": 4 * LENGTH / 1e6, "turns": 2}
GLOO = 5000  # bytes of headers and barriers at most, which the kernel counts, too


def write_study(root, *, collectives="ring", workers="2", exchange=None, **settings):
    study = {
        "defaults": [{"override /cluster": "local"}],
        "study": "made",
        "question": "Which?",
        "predicted_by": {"small_cnn": "two_cores_paced"},
        "exchange": exchange or EXCHANGE,
        "hydra": {"sweeper": {"params": {"scheme.collective": collectives, "workers": workers}}},
        **settings,
    }
    path = root / "experiments/made.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text("# @package _global_\n" + yaml.safe_dump(study))


def exchange(root, *overrides):
    """Run the command; return the rows of exchanges.csv."""
    options = Namespace(study="made", overrides=list(overrides))
    options.dry_run = options.prepare = options.cancel = False
    options.source = None
    with chdir(root):
        assert command("sweep").run(options, root) == 0
    return rows_of(root / "reports/made/exchanges.csv")


@pytest.mark.slow
def test_every_collective_sends_what_its_formula_says_and_none_is_measured_twice(
    root, monkeypatch, capsys
):
    write_study(root, collectives=COLLECTIVES, workers="2,3")
    rows = exchange(root)
    out = capsys.readouterr().out
    assert [row["turn"] for row in rows] == ["0", "1"] * 12
    assert {row["status"] for row in rows} == {"finished"}
    assert {row["num_bytes"] for row in rows} == {str(4 * LENGTH)}
    for row in rows:
        sent, received, formula = (int(row[f"bytes_{n}"]) for n in ("sent", "received", "formula"))
        if row["collective"] == "native":
            assert formula <= sent <= formula + GLOO
        else:
            assert sent == received == formula == 2 * (int(row["workers"]) - 1) * 4 * LENGTH
        assert float(row["seconds"]) > 0
        assert float(row["predicted_seconds"]) > 0
    assert "local (measured), 3 kB: With " in out  # 2 or 3: who is first may vary

    monkeypatch.setattr(exchange_study, "measure_exchanges", None)
    assert exchange(root) == rows
    options = Namespace(study="made", check=False, single=None, verify=False, records=None)
    command("report").run(options, root)
    assert "12 of 12 points finished" in (root / "reports/made/README.md").read_text()


def test_an_exchange_that_fails_is_a_row_and_the_others_are_measured(root, monkeypatch):
    """Together they fail; alone, one of them does."""
    asked = []

    def measure(cluster, workers, wanted, turns):
        asked.append([each.collective for each in wanted])
        if "ring" in asked[-1]:
            raise ProcessFailure("worker 1: timed out")
        return [Exchanged([0.5] * turns, 8, 8, 8) for _ in wanted]

    monkeypatch.setattr(exchange_study, "measure_exchanges", measure)
    write_study(root, collectives="ring,tree", predicted_by=None)
    failed, *finished = exchange(root)
    assert (failed["status"], failed["reason"]) == ("failed", "worker 1: timed out")
    assert (failed["seconds"], failed["bytes_sent"]) == ("", "")
    assert [(row["collective"], row["seconds"]) for row in finished] == [("tree", "0.5")] * 2
    assert asked == [["ring", "tree"], ["ring"], ["tree"]]
    exchange(root, "sweep.rerun=failed")
    assert asked[3:] == [["ring"]]
    rows = exchange(root, "workers=3", "scheme.collective=native")
    assert [(row["collective"], row["workers"]) for row in rows] == [
        *[("ring", "2")],
        *[("tree", "2")] * 2,
        *[("native", "3")] * 2,
    ]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["scheme.collective=gossip"], "scheme.collective: there is no gossip"),
        (["workers=1"], "workers: an exchange needs at least 2, not 1"),
        (["exchange.megabytes=0"], "exchange.megabytes: should be greater than 0"),
        (["exchange.megabytes=1e-6"], "exchange.megabytes: not a whole number of 4 bytes"),
        (["exchange.turns=0"], "exchange.turns: should be greater than or equal to 1"),
        (["cluster=virtual"], "cluster: exchanges are measured between real processes"),
        (["scheme.compression=fp16"], "scheme.compression: exchanges are not compressed"),
    ],
)
def test_bad_input_is_refused_before_a_process_starts(root, monkeypatch, overrides, message):
    monkeypatch.setattr(exchange_study, "measure_exchanges", None)
    write_study(root, collectives="ring,tree")
    with pytest.raises(SettingError, match=message):
        exchange(root, *overrides)


def test_its_points_are_no_trainings(root, capsys):
    write_study(root)
    with pytest.raises(SettingError, match="exchange: a study of exchanges trains nothing"):
        _ = study_points("made", root)[0].point
    print_plan(checked_study("made", root))
    assert capsys.readouterr().out.splitlines()[-1] == "1 points: 1 to do; 1 to run"
