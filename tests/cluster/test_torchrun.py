"""Two nodes by the real torchrun, here two of its agents on one machine."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiny import REPOSITORY

pytestmark = pytest.mark.slow
SMALL = [
    "data=synthetic",
    "data.num_train=96",
    "data.num_validation=48",
    "data.num_test=48",
    "training.samples=192",
    "measurement.mlflow.tracking_uri=null",
    "cluster.accelerator=cpu",
    "batch_size=8",
    "study=nodes",
]


@pytest.fixture
def project(tmp_path):
    """A project of the settings here, and a study in it."""
    (tmp_path / "conf").symlink_to(REPOSITORY / "conf")
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments/nodes.yaml").write_text(
        "# @package _global_\nstudy: nodes\ngrids:\n"
        "  - scheme: sync_allreduce,async_parameter_server\n    workers: 2\n"
    )
    return tmp_path


def run_both(project, *command):
    """Exit codes and what was printed, of torchrun on two nodes."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{project}:{REPOSITORY / 'src'}",
        "OMP_NUM_THREADS": "1",
    }
    logs = [project / f"node_{rank}.log" for rank in (0, 1)]
    processes = []
    for rank, log in enumerate(logs):
        with log.open("w") as file:
            torchrun = [Path(sys.executable).with_name("torchrun"), "--nnodes=2"]
            torchrun += ["--nproc-per-node=1", f"--node-rank={rank}", "--master-addr=127.0.0.1"]
            torchrun += [f"--master-port={port}", "-m", "paceline", *command]
            processes.append(
                subprocess.Popen(torchrun, cwd=project, env=environment, stdout=file, stderr=file)
            )
    try:
        codes = [process.wait() for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return codes, [log.read_text() for log in logs]


def test_a_sweep_trains_on_both_nodes_and_runs_nothing_twice(project):
    """Then there is nothing to run, and no node waits for it."""
    assert shutil.which("torchrun", path=str(Path(sys.executable).parent))
    sweep = ("sweep", "nodes", "cluster=torchrun", *SMALL)
    codes, logs = run_both(project, *sweep)
    assert codes == [0, 0], logs
    assert "2 points: 2 finished" in logs[0]
    assert "finished" not in logs[1]
    codes, logs = run_both(project, *sweep)
    assert codes == [0, 0], logs
    assert "2 points: 2 finished" in logs[0]


def test_another_cluster_is_refused_once(project):
    """Else every process would run all of it. The second comes when the first would be gone."""
    late = "import os, time; time.sleep(8 * (os.environ.get('RANK') == '1'))"
    (project / "sitecustomize.py").write_text(late)
    codes, logs = run_both(project, "train", "workers=2", *SMALL)
    assert codes[0] != 0
    assert "cluster: it does not use the processes that torchrun started" in logs[0]
    assert not (project / "runs").exists()


def test_torchrun_s_cluster_needs_torchrun(project):
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    command = [sys.executable, "-m", "paceline", "train", "cluster=torchrun", *SMALL]
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == (
        "paceline: cluster: it needs torchrun --nproc-per-node=1 -m paceline train "
        "cluster=torchrun ...\n"
    )


def test_several_processes_of_srun_are_refused(project):
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), "SLURM_STEP_NUM_TASKS": "2"}
    command = [sys.executable, "-m", "paceline", "train", *SMALL]
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("paceline: processes: srun started several")
