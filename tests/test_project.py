"""What the project promises of itself: locked versions, imports in one direction, a pipeline.

Every study is in dvc.yaml, and in a fresh clone only quick is stale.
"""

import importlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
import yaml

from benchmarks.mutants.drawn import known_faults

ROOT = Path(__file__).parent.parent
ROOMS = sorted(
    path.parent.name
    for path in (ROOT / "src/paceline").glob("*/__init__.py")
    if path.parent.name != "conf"  # a link to the settings, no code
)


def project_settings():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def locked_versions():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    return {canonical(name): version for name, version in pins.items()}


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_lock_pins_every_dependency_to_an_exact_version():
    for name, version in locked_versions().items():
        assert re.fullmatch(r"\d[\w.]*", version), f"{name}: {version}"  # no +cpu, no address
    project = project_settings()["project"]
    asked = project["dependencies"] + project["optional-dependencies"]["dev"]
    names = {canonical(re.match(r"[\w.-]+", requirement)[0]) for requirement in asked}
    assert names <= locked_versions().keys()


def test_the_version_is_one_in_all_files():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    changed = re.search(r"^## (\S+) - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert changed.groups() == (cited["version"], str(cited["date-released"]))
    assert cited["version"] == project_settings()["project"]["version"]


def test_torch_and_torchvision_are_pinned_as_a_pair_that_loads():
    pair = [locked_versions()[name] for name in ("torch", "torchvision")]
    assert pair == ["2.15.0", "0.29.2"]  # renew both together
    importlib.import_module("torchvision")  # a pair that does not match has no operators
    assert torch.ops.torchvision.nms


def test_the_contract_lists_every_room():
    contracts = project_settings()["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    assert sorted(room for layer in layers for room in layer.split(" | ")) == ROOMS


def test_each_known_fault_is_of_one_line_that_is_there():
    """Where this fails, known.yaml names a line that was changed since."""
    assert known_faults(ROOT)


PIPELINE = yaml.safe_load((ROOT / "dvc.yaml").read_text())
STUDIES = PIPELINE["vars"][0]["studies"]


def test_every_study_is_in_the_pipeline_with_the_files_that_it_reads():
    """But for those without results: `dvc repro` of a fresh clone would run them for hours."""
    files = sorted((ROOT / "experiments").glob("*.yaml"))
    named = [path for path in files if (ROOT / f"reports/{path.stem}/study.json").exists()]
    assert {path.stem for path in named} | {"quick"} == set(STUDIES)
    for name, study in STUDIES.items():
        defaults = yaml.safe_load((ROOT / f"experiments/{name}.yaml").read_text()).get("defaults")
        inherited = [each for each in defaults or [] if isinstance(each, str)]
        assert [study["base"]] == (inherited or [name])
        predicted = (ROOT / f"reports/{name}/predictions.csv").exists()
        assert study["last"] == ("predictions.csv" if predicted else "runs.csv")


@pytest.mark.slow
def test_a_fresh_clone_runs_the_quick_study_and_none_of_the_long(tmp_path):
    """Everything that a stage of another study reads and writes is in git."""
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    names = [f"{stage}@{study}" for stage in ("study", "report") for study in STUDIES]
    others = [name for name in names if not name.endswith("@quick")]
    dvc(clone, "commit", "--force", "--quiet", "published", "papers", "front", "predict", *others)
    assert set(json.loads(dvc(clone, "status", "--json"))) == {"study@quick", "report@quick"}


def dvc(root, *arguments):
    command = [Path(sys.executable).with_name("dvc"), *arguments]
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
