"""Processes of a point: how their failures are told, and that none is left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from paceline.cluster.launch import ProcessFailure, launch
from paceline.errors import SettingError
from tests.tiny import run_tiny, tiny_point


def failing(scheme, killed):
    return tiny_point(
        scheme,
        2,
        4,
        model___target_="tests.tiny.FailingClassifier",
        model__killed=killed,
    )


@pytest.mark.parametrize("scheme", ["sync_allreduce", "async_parameter_server"])
@pytest.mark.parametrize(
    ("killed", "reason"),
    [(False, r"worker 1: ValueError: a bad batch"), (True, r"worker 1: killed by SIGKILL")],
)
def test_a_failure_names_the_worker_and_its_reason(scheme, killed, reason, tmp_path):
    with pytest.raises(ProcessFailure, match=reason) as failure:
        run_tiny(failing(scheme, killed), tmp_path)
    assert "\n" not in str(failure.value)


def test_a_setting_that_only_a_process_can_judge_is_a_setting_error(tmp_path):
    config = tiny_point("sync_allreduce", 2, 25)
    with pytest.raises(SettingError, match=r"batch_size: 25 is more than a worker's share of 24"):
        run_tiny(config, tmp_path)


def test_a_wrong_count_of_workers_is_an_error(tmp_path):
    with pytest.raises(ProcessFailure, match="workers: 3 asked for, 2 training"):
        launch("tests.cluster.counting:count", (3,), workers=2, servers=0, log_folder=tmp_path)


LAUNCHER = """
import sys
import time
from pathlib import Path
if __name__ == "__main__":
    from tests.tiny import run_tiny, tiny_point
    config = tiny_point("async_parameter_server", 2, 4, training__epochs=10**6)
    try:
        run_tiny(config, Path(sys.argv[1]))
    except Exception:  # as Hydra does, which then goes on with the next point
        time.sleep(60)
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_a_launcher_that_ends_leaves_no_process(sent, tmp_path):
    script = tmp_path / "launcher.py"
    script.write_text(LAUNCHER)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), *sys.path])}
    launcher = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)],
        env=environment,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    live = tmp_path / "progress.csv"
    wait_until(lambda: live.exists() and len(live.read_text().splitlines()) > 1, seconds=60)
    family = psutil.Process(launcher.pid).children(recursive=True)
    assert len([process for process in family if process.is_running()]) >= 3
    launcher.send_signal(sent)
    launcher.wait(timeout=10)
    wait_until(lambda: not [p for p in family if alive(p)], seconds=10)


def alive(process):
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def wait_until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
