"""The parameter-server strategy outside the project's own training."""

import pytest
import torch

from tests.clock.wall.alone import STEPS
from tests.launching import launch

REFUSED = ("bf16-true", "16-true")  # 16-mixed on a CPU is bf16-mixed to Lightning


def test_it_trains_in_anybodys_trainer(tmp_path):
    folder = tmp_path / "written"
    first, second, server = launch(
        "tests.clock.wall.alone:train", (folder,), workers=2, servers=1, log_folder=tmp_path
    )
    assert first["steps"] + second["steps"] == server["updates"] == STEPS
    assert [updates for updates, _ in first["snapshots"] + second["snapshots"]] == [20, 40]
    assert second["snapshots"][0][1] == pytest.approx([2.0, -1.0, 0.5], abs=0.05)
    assert sorted(path.name for path in folder.iterdir()) == ["log of worker0", "worker0.ckpt"]
    kept = torch.load(folder / "worker0.ckpt", weights_only=False)
    assert kept["global_step"] == first["steps"] // 4 * 4


def test_metrics_early_stopping_and_tests_wait_for_nobody(tmp_path):
    """Worker 0 stops after its first pass of eight batches; its granted step holds nobody."""
    first, second, server = launch(
        "tests.clock.wall.alone:measure", (), workers=2, servers=1, log_folder=tmp_path
    )
    assert first["steps"] == 8
    assert first["steps"] + second["steps"] == server["updates"] <= STEPS
    assert 0 < second["error"] < 10
    for each in (first, second):
        assert each["again"].startswith("strategy: it has trained")


def test_all_workers_test_the_checkpoint_that_was_written(tmp_path):
    folder = tmp_path / "written"
    *found, _ = launch(
        "tests.clock.wall.alone:tested", (folder,), workers=2, servers=1, log_folder=tmp_path
    )
    (path,) = folder.iterdir()
    kept = torch.load(path, weights_only=False)["state_dict"]["line.weight"]
    assert found == [(str(path), kept.tolist())] * 2


def test_what_a_server_cannot_honour_is_refused_by_name(tmp_path):
    target = "tests.clock.wall.alone:refused"
    (found,) = launch(target, (REFUSED,), workers=1, servers=0, log_folder=tmp_path)
    *said, clipping, resuming = found
    for precision, line in zip(REFUSED, said, strict=True):
        assert line.startswith(f"training.precision: {precision} ")
    assert clipping.startswith("training.gradient_clip_val: workers clip their own gradients")
    assert resuming.startswith("ckpt_path: one worker's file does not contain a run")
