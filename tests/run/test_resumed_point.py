"""A point whose processes were killed is resumed where its last checkpoint was, and says so."""

import csv
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from paceline.record.checkpoint import complete, folder_of, latest
from paceline.run.checkpoints import ServerCheckpoints
from paceline.run.run_point import run_point
from tests.tiny import CLOCKS, point_of, tiny_point

OFTEN = 1e-6  # s between checkpoints: after each step
ADAM = {"_target_": "torch.optim.Adam", "_partial_": True, "lr": 0.01, "betas": [0.9, 0.99]}
SCHEDULED = {
    "model__periods": [10, 14, 22, 30],
    "training__schedule": "constant",
    "training__lr_rule": "none",
}
SAME = [  # schemes whose order of updates does not depend on real time
    ("gossip", "virtual", {}),
    ("sync_allreduce", "wall", {"training__ema_decay": 0.9}),
    ("local_sgd", "wall", {"scheme__period": 3, "model__optimizer": ADAM}),
    ("sync_parameter_server", "wall", {"scheme__servers": 2, "training__ema_decay": 0.9}),
    pytest.param("diloco", "wall", {"scheme__period": 2}, marks=pytest.mark.slow),
    pytest.param("sync_gossip", "wall", {}, marks=pytest.mark.slow),
    pytest.param("sync_allreduce", "wall", SCHEDULED, marks=pytest.mark.slow),
    pytest.param("local_sgd", "wall", SCHEDULED | {"scheme__period": 3}, marks=pytest.mark.slow),
]


def mortal(scheme, clock, graves, settings):
    network = {"_target_": "tests.tiny.tiny_network", "batch_norm": True}
    return point_of(
        tiny_point(
            scheme,
            2,
            4,
            model___target_="tests.run.mortal.MortalClassifier",
            model__network=network,
            model__graves=str(graves),
            model__turn=8,
            training__checkpoint_seconds=OFTEN,
            **CLOCKS[clock],
            **settings,
        )
    )


def folder_of_graves(tmp_path, *ranks):
    folder = tmp_path / f"graves of {ranks}"
    folder.mkdir()
    for rank in ranks:
        (folder / str(rank)).touch()
    return folder


def curve(folder):
    """The rows without the real times, and the times of the training clock."""
    with (folder / "curve.csv").open(newline="") as file:
        rows = [*csv.DictReader(file)]
    untimed = [{name: row[name] for name in row if "seconds" not in name} for row in rows]
    return untimed, [float(row["seconds"]) for row in rows]


def add_seconds(state):
    """Let a part of a checkpoint be of a run that had lasted 1,000 s longer."""
    for part in state.values() if isinstance(state, dict) else state:
        if isinstance(part, dict | list):
            add_seconds(part)
    if "seconds" in state:
        state["seconds"] += 1000


def make_longer(record):
    found = latest(record)
    for path in folder_of(record, found.number).glob("*.ckpt"):
        state = torch.load(path)
        add_seconds(state)
        torch.save(state, path)
    complete(record, found.number, found.samples, found.resumes)


@pytest.mark.parametrize(("scheme", "clock", "settings"), SAME)
def test_a_killed_point_goes_on(scheme, clock, settings, tmp_path, monkeypatch, capsys):
    """Its record is that of a point which was never killed."""
    monkeypatch.chdir(tmp_path)
    whole = run_point(mortal(scheme, clock, folder_of_graves(tmp_path, 0, 1), settings))
    graves = folder_of_graves(tmp_path)
    point = mortal(scheme, clock, graves, settings)
    killed = run_point(point)
    (graves / "0").touch(), (graves / "1").touch()  # whoever was ended by the launcher
    assert (killed.result["status"], killed.result["resumes"]) == ("failed", None)
    assert "resumed" not in capsys.readouterr().out
    make_longer(next(Path("runs").rglob("complete.json")).parents[2])
    resumed = run_point(point)
    steps = 16 if clock == "wall" else 8  # or a step of each less, if a process had yet to write
    said = {f"{point.config.key}: resumed at {4 * each} images\n" for each in (steps - 2, steps)}
    assert capsys.readouterr().out in said
    assert (resumed.result["status"], resumed.result["resumes"]) == ("finished", 1)
    assert resumed.result["checkpoints"] >= whole.result["checkpoints"] > 0
    same = ("samples", "updates", "distinct_samples", "top1", "test_loss", "certificate")
    assert [resumed.result[name] for name in same] == [whole.result[name] for name in same]
    (rows, seconds), (expected, _) = curve(resumed.folder), curve(whole.folder)
    assert rows == expected != []
    assert seconds == sorted(set(seconds))
    assert clock == "virtual" or seconds[0] > 1000
    weights = [torch.load(each.folder / "weights.pt") for each in (whole, resumed)]
    assert_close(*weights, rtol=0, atol=0)
    assert not list(Path("runs").rglob("*.ckpt"))


def test_a_server_on_a_cpu_reads_the_checkpoint_of_one_on_a_gpu(tmp_path, monkeypatch):
    path = tmp_path / "server_0.ckpt"
    monkeypatch.setattr(torch.serialization, "location_tag", lambda storage: "cuda:0")
    torch.save({"weights": torch.arange(3.0)}, path)
    monkeypatch.undo()
    point = point_of(tiny_point("async_parameter_server", 1, 4))
    files = ServerCheckpoints(point, tmp_path, "server_0")
    files.before = path
    assert torch.equal(files.load()["weights"], torch.arange(3.0))
