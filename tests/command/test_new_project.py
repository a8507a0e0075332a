"""A project begins with `paceline init`, wherever Paceline is installed."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from paceline.command.init_command import new_project
from paceline.errors import SettingError
from paceline.record.record import records_in
from paceline.study.compose import composed
from paceline.study.study_points import studies
from tests.command_line import run

ROOT = Path(__file__).parents[2]
QUICK = [
    "training.epochs=1",
    "seed=0",
    "measurement.mlflow.tracking_uri=null",
    "training.rate=by_rule",
]
ANYBODY = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "anybody"), ("EMAIL", "anybody@example.org"))
}


@pytest.fixture
def project(tmp_path):
    new_project(tmp_path / "my project")
    return tmp_path / "my project"


def test_a_setting_of_the_project_replaces_that_of_paceline_beside_its_own(project, monkeypatch):
    monkeypatch.chdir(project)
    config = composed(["model=own", "experiments=first", "scheme=gossip"], project)
    assert config.values["model"]["_target_"] == "own.module.OwnModule"
    assert (config.names["scheme"], config.values["margin"]) == ("gossip", 1)
    (project / "conf/training").mkdir()
    text = (ROOT / "conf/training/sgd.yaml").read_text()
    (project / "conf/training/sgd.yaml").write_text(text.replace("epochs: ", "epochs: 1"))
    with (project / "conf/config.yaml").open("a") as file:
        file.write("margin: 2\n")
    ours, theirs = composed([], project), composed([], ROOT)
    assert ours.values["training"]["epochs"] > theirs.values["training"]["epochs"]
    assert ours.values["margin"] == 2


def test_the_pipeline_runs_the_studies_that_there_are(project):
    pipeline = yaml.safe_load((project / "dvc.yaml").read_text())
    assert pipeline["vars"] == [{"studies": studies(project)}]
    for stage in pipeline["stages"].values():
        deps = [name.replace("${item}", "first") for name in stage["do"]["deps"]]
        assert all((project / name).exists() for name in deps if not name.startswith("reports/"))


def test_nothing_is_replaced(project):
    (project / "dvc.yaml").unlink()
    with pytest.raises(SettingError, match=r"^folder: .*/.gitignore is there already"):
        new_project(project)
    assert not (project / "dvc.yaml").exists()
    (project / "file").touch()
    with pytest.raises(SettingError, match=r"^folder: cannot write .*/file"):
        new_project(project / "file")


def test_the_command_says_what_it_wrote_and_what_comes_next(tmp_path):
    code, lines, errors = run(tmp_path, "init", "its own")
    assert (code, errors) == (0, [])
    assert lines[-1].startswith("next: cd 'its own' && git init && dvc init && dvc repro")
    written = [path for path in (tmp_path / "its own").rglob("*") if path.is_file()]
    assert lines[:-1] == sorted(str(path.relative_to(tmp_path / "its own")) for path in written)
    assert run(tmp_path, "init", "its own")[0] == 2


def test_help_names_the_files_of_the_project_and_of_paceline(project):
    text = " ".join(" ".join(run(project, "train", "--help")[1]).split())
    for group in ("cluster aws_p4d, aws_p5,", "model alexnet, cifar_resnet, googlenet, nin, own,"):
        assert group in text
    assert all(f" {scheme}, " in text for scheme in ("gossip", "local_sgd"))
    assert " experiments first " in text


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The files of the wheel in a folder, as pip installs them."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("src", "conf"):
        left = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=left)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", target, source]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options], check=True)
    (wheel,) = target.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        files.extractall(target)
    return target


@pytest.mark.slow
def test_the_wheel_alone_trains_a_module_of_the_user_and_reports(installed, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(installed)}

    def paceline(*arguments, cwd=tmp_path / "project"):
        command = [sys.executable, "-m", "paceline", *arguments]
        subprocess.run(command, cwd=cwd, env=environment, check=True, capture_output=True)

    paceline("init", "project", cwd=tmp_path)
    paceline("sweep", "first", "scheme=sync_allreduce", "workers=1,2", *QUICK)
    paceline("report", "first")
    reports = tmp_path / "project/reports"
    assert (reports / "first/index.html").stat().st_size > 20_000
    assert (reports / "vega.js").stat().st_size > 100_000
    names = {path.name for path in installed.rglob("*.yaml")}
    assert names >= {path.name for path in (ROOT / "conf").rglob("*.yaml")}


@pytest.mark.slow
def test_dvc_tries_a_setting_and_tells_what_it_changed(project):
    """`dvc exp run -S` is an experiment with another setting of the study's file."""

    def shell(*words):
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, **ANYBODY, "PATH": path}
        done = subprocess.run(words, cwd=project, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    study = project / "experiments/first.yaml"
    content = yaml.safe_load(study.read_text())
    content["hydra"]["sweeper"]["params"] = {"scheme": "sync_allreduce", "seed": "0"}
    content |= {"measurement": {"mlflow": {"tracking_uri": None}}, "workers": 2}
    content["training"] = {"epochs": 1, "rate": "by_rule", "lr": 0.05}
    study.write_text("# @package _global_\n" + yaml.safe_dump(content, sort_keys=False))
    for tool in ("git", "dvc"):
        shell(tool, "init", "--quiet")
    shell("dvc", "repro", "--quiet")
    shell("git", "add", "--all")
    shell("git", "commit", "--quiet", "--message", "first")
    shell("dvc", "exp", "run", "--quiet", "--set-param", "experiments/first.yaml:training.lr=0.02")
    (changed,) = json.loads(shell("dvc", "params", "diff", "--json")).values()
    assert {name: each["new"] for name, each in changed.items()} == {"training.lr": 0.02}
    (metrics,) = json.loads(shell("dvc", "metrics", "diff", "--json")).values()
    assert metrics["top1.allreduce x2"]["diff"] != 0
    (plot,) = json.loads(shell("dvc", "plots", "diff", "--json"))["data"].values()
    rows = plot[0]["content"]["data"]["values"]
    assert {(row["rev"], row["scheme"], row["workers"]) for row in rows} == {
        (rev, "sync_allreduce", "2") for rev in ("HEAD", "workspace")
    }
    assert len(records_in(project / "runs/first")) == 2
