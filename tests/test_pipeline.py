"""dvc.yaml, the table of contents: every study is in it, and stages meet at files."""

from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
PIPELINE = yaml.safe_load((ROOT / "dvc.yaml").read_text())
STUDIES = [path.stem for path in sorted((ROOT / "experiments").glob("*.yaml"))]
TABLES = ("runs.csv", "curves.csv", "staleness.csv", "phases.csv", "study.json")


def stage(name, study):
    """A stage of `study`: commands, dependencies, outputs with their options."""
    text = yaml.safe_dump(PIPELINE["stages"][name]["do"]).replace("${item}", study)
    entries = yaml.safe_load(text)
    outs = [*entries.get("outs", []), *entries.get("metrics", [])]
    return entries["cmd"], entries["deps"], {k: v for out in outs for k, v in out.items()}


def test_every_study_is_in_the_pipeline():
    assert sorted(PIPELINE["vars"][0]["studies"]) == STUDIES
    for name in ("prepare", "sweep", "analyse", "report"):
        assert PIPELINE["stages"][name]["foreach"] == "${studies}"


@pytest.mark.parametrize("study", STUDIES)
def test_stages_run_the_commands_of_the_study(study):
    commands = [stage(name, study)[0] for name in ("prepare", "sweep", "analyse", "report")]
    assert commands == [
        f"paceline prepare {study}",
        [f"paceline sweep {study}", f"paceline collect {study}"],
        f"paceline analyse {study}",
        f"paceline report {study}",
    ]


@pytest.mark.parametrize("study", STUDIES)
def test_records_outlive_a_rerun_and_tables_are_committed(study):
    _, deps, outs = stage("sweep", study)
    assert {"conf", f"experiments/{study}.yaml"} <= set(deps)
    assert outs.pop(f"runs/{study}") == {"persist": True}
    assert outs == {f"reports/{study}/{table}": {"cache": False} for table in TABLES}
    for name in ("prepare", "analyse", "report"):
        assert all(options == {"cache": False} for options in stage(name, study)[2].values())


@pytest.mark.parametrize("study", STUDIES)
def test_what_a_stage_needs_is_in_the_repository_or_made_before(study):
    made = set()
    for name in ("prepare", "sweep", "analyse", "report"):
        _, deps, outs = stage(name, study)
        assert all(dep in made or (ROOT / dep).exists() for dep in deps)
        made |= outs.keys()


def test_plots_are_drawn_from_what_a_stage_writes():
    tables = {file for plot in PIPELINE["plots"] for each in plot.values() for file in each["y"]}
    outs = {
        out for study in STUDIES for name in PIPELINE["stages"] for out in stage(name, study)[2]
    }
    assert tables <= outs
