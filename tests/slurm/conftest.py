"""One Slurm for all tests of this folder, and a project beside it."""

import tempfile
from pathlib import Path

import pytest
import yaml

from tests.ends import wait_until
from tests.slurm.faults import in_jobs
from tests.slurm.real_slurm import real_slurm, why_not
from tests.tiny import CONF, REPOSITORY

STUDY = {
    "study": "study",
    "defaults": [{"override /data": "synthetic"}, {"override /cluster": "slurm"}],
    "data": {"num_train": 96, "num_validation": 48, "num_test": 48, "image_shape": [1, 12, 12]},
    "batch_size": 8,
    "workers": 2,
    "training": {"samples": 192},
    "cluster": {"workers_per_node": 2, "timeout_seconds": 60, "minutes": 10},
}


@pytest.fixture(scope="session")
def slurm():
    """Munge wants its folder to be safe: no folder above it that others may write to."""
    if reason := why_not():
        pytest.skip(reason)
    with (
        tempfile.TemporaryDirectory(dir="/run", prefix="paceline-slurm-") as folder,
        real_slurm(Path(folder)) as up,
    ):
        yield up


@pytest.fixture
def project(slurm, tmp_path, monkeypatch):
    """A project as working directory, from which Slurm is found.

    After a test nothing is in the queue, and no process of a job lives.
    """
    monkeypatch.chdir(tmp_path)
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "conf").symlink_to(CONF)
    (tmp_path / "tests").symlink_to(REPOSITORY / "tests")
    (tmp_path / "experiments").mkdir()
    yield tmp_path
    wait_until(lambda: not slurm.ask("squeue", "--noheader"))
    wait_until(lambda: not in_jobs(slurm.environment["SLURM_CONF"]))


@pytest.fixture
def write(project):
    """Function that writes the study of the project."""

    def write_study(grids, *, gated=False, virtual=False, checkpoints=None, **cluster):
        content = {**STUDY, "cluster": {**STUDY["cluster"], **cluster}, "grids": grids}
        content["training"] = {**STUDY["training"], "checkpoint_seconds": checkpoints}
        if virtual:
            queue = {"/cluster/queue@cluster.queue": "slurm"}  # Hydra wants overrides to be last
            content["defaults"] = [queue, STUDY["defaults"][0], {"override /cluster": "virtual"}]
            content["cluster"] = {"queue": cluster}
        store = f"sqlite:///{project}/mlflow.db"  # MLflow keeps a relative one open
        content["measurement"] = {"mlflow": {"tracking_uri": store}}
        if gated:
            patience = {"patience": 5} if checkpoints else {}  # one is written between two steps
            content["model"] = {"_target_": "tests.slurm.gated.GatedClassifier", **patience}
        text = "# @package _global_\n" + yaml.safe_dump(content, sort_keys=False)
        (project / "experiments/study.yaml").write_text(text)

    return write_study
