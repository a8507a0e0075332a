"""SIGKILL of a sweep: no process stays, and the next one goes on where it stopped."""

import subprocess

import psutil
import pytest

from paceline.record.record import records_in
from tests.command_line import results, run, start
from tests.ends import all_end, wait_until
from tests.small_study import write_small_study

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("command", "jobs"), [("sweep", 1), ("train", 2)])
def test_a_killed_sweep_leaves_no_process_and_goes_on(command, jobs, root):
    study = f"{command}{jobs}"
    write_small_study(root, study, {"seed": "0,1,2"}, training={"epochs": 90})
    asked = [study] if command == "sweep" else ["--multirun", f"experiments={study}"]
    arguments = (command, *asked, f"sweep.jobs={jobs}")
    finished = kill_in_the_second_point(root, study, arguments)
    code, _, errors = run(root, *arguments[:-1], "sweep.jobs=1")
    assert (code, errors) == (0, [])
    assert [result["status"] for result in results(root, study)] == ["finished"] * 3
    assert finished
    assert all(path.stat().st_mtime_ns == before for path, before in finished.items())
    if command == "sweep":
        assert not list((root / "runs" / study).glob(".*"))


def kill_in_the_second_point(root, study, arguments):
    """SIGKILL while a point trains and another has ended; when which records were written."""
    folder = root / "runs" / study
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with start(root, *arguments, **silent, start_new_session=True) as launcher:
        try:
            wait_until(lambda: records_in(folder))
            wait_until(lambda: list(folder.glob(".*/progress.csv")))
            family = psutil.Process(launcher.pid).children(recursive=True)
        finally:
            launcher.kill()
    assert len(family) >= 3  # the forkserver and two workers
    finished = {p: p.stat().st_mtime_ns for p in folder.glob("[!.]*/1/result.json")}
    all_end(family)
    assert 1 <= len(records_in(folder)) < 3
    return finished
