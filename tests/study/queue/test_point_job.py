"""What a job does with the points that it has; here in this process, without a queue."""

import json

import pytest

from paceline.errors import SettingError
from paceline.record.provenance import source_digest
from paceline.record.reading import record_version
from paceline.study.compose import composed
from paceline.study.slurm_jobs import PointJob
from tests.tiny import CONF

SMALL = [
    "data=synthetic",
    "data.num_train=48",
    "data.num_validation=24",
    "data.num_test=24",
    "training.samples=96",
    "batch_size=8",
]


@pytest.fixture
def configs(tmp_path, monkeypatch):
    """Two points of a project in the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf").symlink_to(CONF)
    return tuple(composed([*SMALL, f"seed={seed}"], tmp_path) for seed in (0, 1))


def job(configs, versions, tmp_path, code=None):
    return PointJob(configs, versions, code or source_digest(), tmp_path)


@pytest.mark.usefixtures("own_process")
def test_a_job_runs_what_has_not_run_and_logs_nothing(configs, tmp_path, capfd):
    """Called again it runs nothing: as after its allocation was taken away."""
    first, second = configs
    made = first.folder
    made.mkdir(parents=True)
    (made / "result.json").write_text(json.dumps({"status": "finished"}))
    todo = job(configs, (None, None), tmp_path)
    todo()
    assert record_version(second.folder) is not None
    assert f"{first.key}: has run before" in capfd.readouterr().out
    todo()
    told = capfd.readouterr().out
    assert [f"{each.key}: has run before" in told for each in configs] == [True, True]
    assert not list(tmp_path.rglob("*.db"))


@pytest.mark.usefixtures("own_process")
def test_other_code_runs_nothing(configs, tmp_path):
    with pytest.raises(SettingError, match=r"^cluster: the code has changed since this was queued"):
        job(configs, (None, None), tmp_path, code="other")()
    assert not (tmp_path / "runs").exists()
