"""dvc.yaml: every study is in it, and in a fresh clone only quick is stale."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
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
