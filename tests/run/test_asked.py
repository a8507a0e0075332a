"""A checkpoint that a signal asks for: of a scheduler that is about to end a run, or of a user."""

import os
import signal
import threading
import time

import pytest

from paceline.record.checkpoint import begin
from paceline.record.record import partial_folder
from paceline.run.run_point import require_plain, run_point
from tests.tiny import CLOCKS, point_of, tiny_point

TURN = 5  # steps before the one in which the signal comes


@pytest.fixture
def point(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return point_of(
        tiny_point(
            "async_parameter_server",
            2,
            4,
            model___target_="tests.run.mortal.AskingClassifier",
            model__came=str(tmp_path / "came"),
            model__asked="*/.*.partial/checkpoint/asked",
            model__turn=TURN,
            training__checkpoint_seconds=1000,
            **CLOCKS["virtual"],
        )
    )


def send(number, came):
    """Signal this process when the point under way has come to its step."""

    def wait():
        while not came.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    threading.Thread(target=wait, daemon=True).start()


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_point_that_is_asked_for_one_goes_on(number, point, tmp_path):
    before = signal.getsignal(number)
    send(number, tmp_path / "came")
    result = run_point(point).result
    assert (result["status"], result["checkpoints"], result["resumes"]) == ("finished", 1, 0)
    assert signal.getsignal(number) == before


def test_a_point_that_is_ended_writes_one_first(point, tmp_path, capsys):
    send(signal.SIGTERM, tmp_path / "came")
    with pytest.raises(SystemExit) as ended:
        run_point(point)
    assert ended.value.code == 128 + signal.SIGTERM
    partial = partial_folder(point.config.folder)
    assert (
        begin(partial, point.config.key, require_plain, None).samples == 4 * TURN
    )  # one more push is under way
    result = run_point(point).result
    assert (result["status"], result["checkpoints"], result["resumes"]) == ("finished", 1, 1)
    assert "resumed at 20 images" in capsys.readouterr().out
