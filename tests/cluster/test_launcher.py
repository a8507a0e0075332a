"""Processes of a point: how their failures are told, and that none is left behind."""

import os
import resource
import signal
import subprocess
import sys
import tempfile
from multiprocessing import forkserver
from pathlib import Path

import psutil
import pytest
import torch.distributed as dist

from paceline.cluster.processes import KEEP_MEMORY, preload, wait_for_preload
from paceline.cluster.supervisor import ProcessFailure, Task
from paceline.errors import SettingError
from tests.cluster.counting import listening_of
from tests.ends import all_end, is_alive, wait_until
from tests.launching import launch
from tests.tiny import point_of, run_tiny, tiny_point

COUNTING = "tests.cluster.counting:"


def test_what_only_a_process_can_judge_is_a_setting_error(tmp_path):
    config = tiny_point("sync_allreduce", 2, 25)
    with pytest.raises(SettingError, match=r"batch_size: 25 is more than a worker's share of 24"):
        run_tiny(config, tmp_path)


def test_nobody_else_can_reach_what_processes_of_one_machine_meet_by(tmp_path, monkeypatch):
    """Their store is a file in a folder of its user, and goes with the run."""
    preload()  # its socket is needed longer than the folder below
    before = listening_of(psutil.Process())
    with tempfile.TemporaryDirectory() as temporary:  # of a short path
        monkeypatch.setattr(tempfile, "tempdir", temporary)
        target, arguments = COUNTING + "how_to_meet", (os.getpid(),)
        found = launch(target, arguments, workers=2, servers=1, log_folder=tmp_path)
        assert found == [(0, 0o700, before)] * 3
        assert not list(Path(temporary).glob("paceline-*"))


@pytest.mark.slow
def test_a_run_does_not_need_the_forkserver_once_it_has_started(tmp_path):
    """And the next run has another."""
    target, sent = COUNTING + "signal_forkserver", (signal.SIGKILL,)
    assert launch(target, sent, workers=2, servers=0, log_folder=tmp_path) == ["0", "1"]
    assert launch(target, (0,), workers=1, servers=0, log_folder=tmp_path) == ["0"]


@pytest.fixture
def few_descriptors(monkeypatch):
    monkeypatch.setattr("paceline.cluster.processes._allow_files", lambda: None)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 24, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_processes_without_descriptors_fail_in_one_line(few_descriptors, tmp_path):
    failure = r"^40 processes need \d+ open files, and \d+ are allowed"
    with pytest.raises(ProcessFailure, match=failure) as failed:
        launch(COUNTING + "count", (40,), workers=40, servers=0, log_folder=tmp_path)
    assert failed.value.environment


def test_a_long_folder_of_temporary_files_is_a_setting_error(tmp_path):
    """Which the forkserver's socket would be in."""
    folder = tmp_path / ("a" * 130)
    folder.mkdir()
    code = "from paceline.cluster.processes import preload; preload()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
    )
    assert done.stderr.splitlines()[-1].startswith("paceline.errors.SettingError: TMPDIR: ")


def test_memory_that_a_step_frees_stays_for_the_next(tmp_path):
    """glibc alone would return it: 8,192 faults a round."""
    target, sizes = COUNTING + "page_faults", (5, 4, 8 * 2**20)
    (faults,) = launch(target, sizes, workers=1, servers=0, log_folder=tmp_path)
    assert faults < 1000


def test_nothing_listens_beyond_loopback(tmp_path):
    """Of this process and all it launches, in the middle of training."""
    module = {"model___target_": "tests.cluster.counting.ListeningClassifier"}
    module["model__launcher"] = os.getpid()
    run_tiny(tiny_point("async_parameter_server", 2, 4, **module), tmp_path)


@pytest.fixture
def heard(request):
    """A signal that this process hears, even where tests run under nohup."""
    before = signal.signal(request.param, signal.SIG_DFL)
    yield request.param
    signal.signal(request.param, before)


@pytest.mark.parametrize("heard", [signal.SIGTERM, signal.SIGHUP], indirect=True)
def test_a_launcher_that_is_told_to_end_ends_its_processes(heard, tmp_path):
    target, before = COUNTING + "signal_launcher", handlers()
    with pytest.raises(SystemExit) as ended:
        launch(target, (os.getpid(), int(heard)), workers=2, servers=1, log_folder=tmp_path)
    assert ended.value.code == 128 + heard
    assert handlers() == before
    pids = [int((tmp_path / name).read_text()) for name in ("worker_0.log", "worker_1.log")]
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


def handlers():
    return [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)]


LAUNCHER = """
import sys
import time
from pathlib import Path
if __name__ == "__main__":
    from paceline.cluster.processes import preload, wait_for_preload
    preload()  # beside the imports of this process
    from tests.tiny import run_tiny, tiny_point
    config = tiny_point("async_parameter_server", 2, 4, training__epochs=10**6)
    try:
        run_tiny(config, Path(sys.argv[1]))
    except Exception:  # as Hydra does, which then goes on with the next point
        time.sleep(60)
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.slow
def test_a_launcher_that_ends_leaves_no_process(sent, tmp_path):
    script = tmp_path / "launcher.py"
    script.write_text(LAUNCHER)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), *sys.path])}
    launcher = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)],
        env=environment,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        # who runs the tests in the background of a shell ignores Ctrl-C, and its children would
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    live = tmp_path / "progress.csv"
    family = []
    try:
        wait_until(lambda: live.exists() and len(live.read_text().splitlines()) > 1)
        family = psutil.Process(launcher.pid).children(recursive=True)
        assert len([process for process in family if is_alive(process)]) >= 3
        launcher.send_signal(sent)
        launcher.wait(timeout=60)
        all_end(family)
    finally:
        for process in [launcher, *filter(is_alive, family)]:
            process.kill()
        launcher.wait()


def test_the_forkserver_starts_before_torch_is_imported():
    """So both import it at once, and a command that trains nothing does without."""
    code = "import sys; import paceline.study.hydra_entry; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_ctrl_c_does_not_end_the_forkserver_while_it_imports():
    """It goes to all processes of a terminal, and the launcher decides what ends."""
    forkserver._forkserver._stop()
    preload()
    first = forkserver._forkserver._forkserver_pid
    os.kill(first, signal.SIGINT)
    wait_for_preload()
    assert forkserver._forkserver._forkserver_pid == first


@pytest.mark.parametrize("rank", [1, 2])  # 0: the file of conf, below
def test_one_process_is_this_one_and_the_others_are_not(rank, tmp_path, capfd):
    environment = dict(os.environ)
    places = launch(
        COUNTING + "place", ("x",), workers=2, servers=1, log_folder=tmp_path, own_rank=rank
    )
    assert [each == os.getpid() for each in places] == [other == rank for other in range(3)]
    assert len(set(places)) == 3
    assert capfd.readouterr().out == "x\n"  # the others write to their logs
    assert len(list(tmp_path.iterdir())) == 2
    assert dict(os.environ) == {**environment, "OMP_NUM_THREADS": "1", **KEEP_MEMORY}
    assert not dist.is_initialized()


@pytest.mark.parametrize(
    ("function", "argument", "reason", "where"),
    [
        # others: test_world.py
        ("fail", "real-time signal", "worker 1: killed by signal 35", {}),
        ("fail", "unsendable", "worker 1: .*pickle", {}),
        ("fail", "vanish", "worker 0 shard 1: ended with exit code 7", {"shards": 2}),
        ("count", 3, ".*workers: 3 asked for, 2 training", {}),
        ("place", "0", "worker 0: ValueError: 0$", {"own_rank": 0}),
        ("place", "1", "worker 1: ValueError: 1$", {"own_rank": 0}),
    ],
)
def test_the_first_failure_is_told_however_it_ends(function, argument, reason, where, tmp_path):
    with pytest.raises(ProcessFailure, match=rf"^{reason}") as failure:
        launch(COUNTING + function, (argument,), workers=2, servers=0, log_folder=tmp_path, **where)
    assert "\n" not in str(failure.value)
    assert not dist.is_initialized()
    logs = {path.name for path in tmp_path.iterdir()}
    if "shards" in where:
        assert logs == {"worker_0_shard_0.log", "worker_0_shard_1.log"}


def test_a_worker_that_fails_in_training_is_named(tmp_path):
    """Killed, an asynchronous worker is done without: test_deaths."""
    module = {"model___target_": "tests.classifiers.FailingClassifier", "model__killed": False}
    with pytest.raises(ProcessFailure, match=r"^worker 1: ValueError: a bad batch$"):
        run_tiny(tiny_point("async_parameter_server", 2, 4, **module), tmp_path)


def test_the_file_of_conf_runs_one_of_the_processes_here(tmp_path):
    point = point_of(tiny_point("async_parameter_server", 2, 4, cluster="in_process"))
    assert point.kind == "measured"
    places = point.cluster.run(Task(COUNTING + "place", ("x",), 2, 1, tmp_path))
    assert [each == os.getpid() for each in places] == [True, False, False]
    with pytest.raises(SettingError, match=r"^cluster\.rank: there are 3 processes, .* not 3$"):
        point_of(tiny_point("async_parameter_server", 2, 4, cluster="in_process", cluster__rank=3))
