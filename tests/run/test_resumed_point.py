"""A point whose process was killed is resumed where its last checkpoint was, and says so."""

import csv
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from paceline.run.run_point import run_point
from tests.tiny import CLOCKS, point_of, tiny_point

OFTEN = 1e-6  # s between checkpoints: after each step


def mortal(scheme, clock, died, **settings):
    return point_of(
        tiny_point(
            scheme,
            2,
            4,
            model___target_="tests.run.mortal.MortalClassifier",
            model__died=str(died),
            model__turn=8,
            training__checkpoint_seconds=OFTEN,
            **CLOCKS[clock],
            **settings,
        )
    )


def curve(folder):
    """Without the real times."""
    with (folder / "curve.csv").open(newline="") as file:
        return [
            {name: cell for name, cell in row.items() if "seconds" not in name}
            for row in csv.DictReader(file)
        ]


@pytest.mark.parametrize(("scheme", "clock"), [("gossip", "virtual")])
def test_a_killed_point_goes_on(scheme, clock, tmp_path, monkeypatch, capsys):
    """Its record is that of a point which was never killed."""
    monkeypatch.chdir(tmp_path)
    spared = tmp_path / "spared"
    spared.touch()
    whole = run_point(mortal(scheme, clock, spared))
    point = mortal(scheme, clock, tmp_path / "died")
    killed = run_point(point)
    assert (killed.result["status"], killed.result["resumes"]) == ("failed", None)
    assert "resumed" not in capsys.readouterr().out
    resumed = run_point(point)
    samples = 4 * (16 if clock == "wall" else 8)
    assert capsys.readouterr().out == f"{point.config.key}: resumed at {samples} images\n"
    assert (resumed.result["status"], resumed.result["resumes"]) == ("finished", 1)
    assert resumed.result["checkpoints"] >= whole.result["checkpoints"] > 0
    for name in ("samples", "updates", "distinct_samples", "top1", "test_loss", "bytes_sent"):
        assert resumed.result[name] == whole.result[name], name
    assert curve(resumed.folder) == curve(whole.folder) != []
    weights = [torch.load(each.folder / "weights.pt") for each in (whole, resumed)]
    assert_close(*weights, rtol=0, atol=0)
    assert not list(Path("runs").rglob("*.ckpt"))
