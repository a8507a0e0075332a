"""Two nodes by the real torchrun, here two of its agents on one machine."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch
import yaml

from paceline.record.reading import chosen_attempt, read_result
from paceline.record.record import records_in
from tests.ends import all_end, wait_until
from tests.tiny import REPOSITORY

pytestmark = pytest.mark.slow
DATA = "data=synthetic data.num_train=96 data.num_validation=48 data.num_test=48"
RUN = "training.samples=192 batch_size=8 study=nodes cluster.accelerator=cpu"
SMALL = [*f"{DATA} {RUN}".split(), "measurement.mlflow.tracking_uri=null"]


@pytest.fixture
def project(tmp_path):
    """A project of the settings here, and a study in it."""
    (tmp_path / "conf").symlink_to(REPOSITORY / "conf")
    (tmp_path / "experiments").mkdir()
    return tmp_path


def write(project, *grids):
    study = {"study": "nodes", "save_weights": True, "grids": list(grids)}
    text = "# @package _global_\n" + yaml.safe_dump(study)
    (project / "experiments/nodes.yaml").write_text(text)


def environment_of(project):
    path = f"{project}:{REPOSITORY / 'src'}"
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def paceline(project, *command):
    """The end of a command outside of torchrun."""
    return subprocess.run(
        [sys.executable, "-m", "paceline", *command],
        cwd=project,
        env=environment_of(project),
        capture_output=True,
        text=True,
        check=False,
    )


def start_both(project, *command, per_node=1):
    """torchrun on two nodes with so many processes each, and the files of what is printed."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    logs = [project / f"node_{rank}.log" for rank in (0, 1)]
    processes = []
    for rank, log in enumerate(logs):
        with log.open("w") as file:
            torchrun = [Path(sys.executable).with_name("torchrun"), "--nnodes=2"]
            torchrun += [f"--nproc-per-node={per_node}", f"--node-rank={rank}"]
            torchrun += ["--master-addr=127.0.0.1", f"--master-port={port}"]
            torchrun += ["-m", "paceline", *command]
            environment = environment_of(project)
            processes.append(
                subprocess.Popen(torchrun, cwd=project, env=environment, stdout=file, stderr=file)
            )
    return processes, logs


def run_both(project, *command, per_node=1):
    """Exit codes and what was printed."""
    processes, logs = start_both(project, *command, per_node=per_node)
    try:
        codes = [process.wait() for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return codes, [log.read_text() for log in logs]


def weights_of(project):
    """The weights of each point by cluster, scheme and seed."""
    found = {}
    for folder in map(chosen_attempt, records_in(project / "runs/nodes")):
        config = yaml.safe_load((folder / "config.yaml").read_text())
        result = json.loads((folder / "result.json").read_text())
        place = config["cluster"]["_target_"].split(".")[2]
        found[place, result["scheme"], result["seed"]] = torch.load(folder / "weights.pt")
        assert {path.name for path in folder.iterdir()}.isdisjoint({"token", "returned", "log"})
    return found


def test_a_sweep_of_ten_points_trains_to_the_bits_of_one_machine_and_runs_nothing_twice(project):
    schemes = ("sync_allreduce", "local_sgd")
    write(project, {"scheme": ",".join(schemes), "workers": 2, "seed": "0,1,2,3,4"})
    sweep = ("sweep", "nodes", "cluster=torchrun", *SMALL)
    codes, logs = run_both(project, *sweep)
    assert codes == [0, 0], logs
    assert "10 points: 10 finished" in logs[0]
    assert "finished" not in logs[1]
    codes, logs = run_both(project, *sweep)
    assert codes == [0, 0], logs
    assert "10 points: 10 finished" in logs[0]
    assert "point 1" not in logs[0]
    here = paceline(project, "sweep", "nodes", *SMALL, "seed=0")
    assert here.returncode == 0, here.stderr
    found = weights_of(project)
    for scheme in schemes:
        there, local = found["torchrun", scheme, 0], found["local", scheme, 0]
        assert all(torch.equal(there[name], local[name]) for name in local)


def test_servers_go_on_without_a_killed_worker_and_the_next_point_needs_fewer(project):
    """Four processes, of which the second point needs only two."""
    write(project, {"scheme": "async_parameter_server", "workers": 2}, {"workers": 1})
    killed = ["model._target_=tests.classifiers.FailingClassifier", "+model.killed=true"]
    (project / "tests").symlink_to(REPOSITORY / "tests")
    sweep = ("sweep", "nodes", "cluster=torchrun", *SMALL, *killed)
    codes, logs = run_both(project, *sweep, per_node=2)
    assert codes == [0, 0], logs
    results = [read_result(record) for record in records_in(project / "runs/nodes")]
    lost = {each["workers"]: len(each["lost_workers"]) for each in results}
    assert lost == {1: 0, 2: 1}


def test_all_processes_end_with_a_killed_head(project):
    """A single worker waits for nobody, so that only its follower can end it."""
    endless = ["workers=1", "training.samples=100000000", "study=nodes"]
    processes, _ = start_both(project, "train", "cluster=torchrun", *SMALL, *endless)
    try:
        wait_until(lambda: [*project.glob("runs/nodes/.*/log/*")])
        (head,) = (
            child
            for child in psutil.Process(processes[0].pid).children()
            if "paceline" in child.cmdline()
        )
        started = [each for p in processes for each in psutil.Process(p.pid).children(True)]
        head.kill()
        all_end(started)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_another_cluster_is_refused_once(project):
    """Else every process would run all of it. The second comes when the first would be gone."""
    late = "import os, time; time.sleep(8 * (os.environ.get('RANK') == '1'))"
    (project / "sitecustomize.py").write_text(late)
    codes, logs = run_both(project, "train", "workers=2", *SMALL)
    assert codes[0] != 0
    assert "cluster: it does not use the processes that torchrun started" in logs[0]
    assert not (project / "runs").exists()


def test_a_command_outside_of_torchrun_or_in_several_processes_of_srun_is_refused(
    project, monkeypatch
):
    done = paceline(project, "train", "cluster=torchrun", *SMALL)
    needs = "it needs torchrun --nproc-per-node=2 -m paceline train cluster=torchrun ...\n"
    assert (done.returncode, done.stderr) == (2, f"paceline: cluster: {needs}")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    done = paceline(project, "train", *SMALL)
    assert done.returncode == 2
    assert done.stderr.startswith("paceline: processes: srun started several")
