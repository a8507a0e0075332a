"""What is shown of the work while it goes on."""

import io
import sys
import threading

from paceline.study.progress import Status, display, status_line

BEGUN = Status("made", 0.25, "1 of 4 points")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_without_a_terminal_a_line_comes_at_the_start_and_every_thirty_seconds():
    file, seconds = io.StringIO(), iter([0.0, 0.0, 29.0, 30.0, 30.0])
    with display(file, now=lambda: next(seconds)) as show:
        show(Status("made", None, "starting"))
        for _ in range(3):
            show(BEGUN)
    assert file.getvalue().splitlines() == ["progress: made: 25 %, 1 of 4 points"] * 2


def test_on_a_terminal_a_bar_comes_and_goes():
    file = Terminal()
    with display(file) as show:
        show(Status("made", None, "starting"))
        show(BEGUN)
        assert "starting" in file.getvalue()
        assert "1 of 4 points" in file.getvalue()
        shown = len(file.getvalue())
    assert file.getvalue()[shown:].endswith("\x1b[2K")  # erased


def test_the_state_is_asked_for_until_the_work_ends(monkeypatch, capsys):
    monkeypatch.setattr("paceline.study.progress._PERIOD", 0.01)
    asked = threading.Event()
    looks = iter([FileNotFoundError(), BEGUN])

    def status():
        look = next(looks, None)
        if isinstance(look, OSError):
            raise look
        if look is None:  # what came before has been shown
            asked.set()
        return BEGUN

    with status_line(status):
        assert asked.wait(100)
    assert capsys.readouterr() == ("", "progress: made: 25 %, 1 of 4 points\n")
    assert not [thread for thread in threading.enumerate() if thread.name == "status"]


def test_a_bar_leaves_standard_output_to_results(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with display(sys.stderr) as show:
        show(BEGUN)
        print("a result")
    assert capsys.readouterr().out == "a result\n"
