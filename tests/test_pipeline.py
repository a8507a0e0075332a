"""dvc.yaml, the table of contents: every study is in it, and stages meet at files."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from paceline.analysis.analyse import FOLDER
from paceline.measurement.rows import POINT_TABLES
from paceline.record.archive import ARCHIVE

ROOT = Path(__file__).parent.parent
PIPELINE = yaml.safe_load((ROOT / "dvc.yaml").read_text())
LISTS = {name: studies for lists in PIPELINE["vars"] for name, studies in lists.items()}
STUDIES = LISTS["studies"] + LISTS["long_studies"] + LISTS["predicted_studies"]
STAGES = {
    "studies": ("prepare", "sweep", "analyse", "report"),
    "long_studies": ("long", "analyse_long", "report_long"),
    "predicted_studies": ("predicted", "predict", "analyse_predicted", "report_predicted"),
    "exchange_studies": ("exchanges", "analyse_exchanges", "report_exchanges"),
}
TABLES = ["runs", *(table.collected for table in POINT_TABLES), "tuning"]
PREDICTIONS = PIPELINE["stages"]["predictions"]
COLLECTED = (*(f"{table}.csv" for table in TABLES), "study.json")
CONCLUDED = (FOLDER, "metrics.json")


def stages(study):
    (kind,) = (name for name, studies in LISTS.items() if study in studies)
    return STAGES[kind]


def collected(study):
    """Tables before those of conclusions."""
    return (*COLLECTED, *(["predictions.csv"] if study in LISTS["predicted_studies"] else []))


def stage(name, study):
    """A stage of `study`: commands, dependencies (its file is parameters), outputs and options."""
    text = yaml.safe_dump(PIPELINE["stages"][name]["do"]).replace("${item}", study)
    entries = yaml.safe_load(text)
    outs = [*entries.get("outs", []), *entries.get("metrics", [])]
    files = [path for each in entries.get("params", []) for path in each]
    return (
        entries["cmd"],
        [*entries["deps"], *files],
        {k: v for out in outs for k, v in out.items()},
    )


def test_every_study_is_in_one_list_of_the_pipeline():
    assert sorted(study for studies in LISTS.values() for study in studies) == sorted(
        path.stem for path in (ROOT / "experiments").glob("*.yaml")
    )
    lists = {name: stage.get("foreach") for name, stage in PIPELINE["stages"].items()}
    assert lists == {
        **{name: f"${{{kind}}}" for kind, names in STAGES.items() for name in names},
        "predictions": None,
    }


def test_predictions_depend_on_every_room_that_they_import():
    """Of the project's own, what they import below the points of a study."""
    code = "import sys, paceline.prediction.published; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    loaded = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    rooms = {name.split(".")[1] for name in loaded if name.startswith("paceline.")}
    deps = {Path(each).parts[2] for each in PREDICTIONS["deps"] if each.startswith("src/")}
    beside = {"errors", "settings", "random_bits", "record", "study", "data"}
    assert rooms - beside <= deps
    assert {"conf", "papers"} <= set(PREDICTIONS["deps"])


@pytest.mark.parametrize("study", STUDIES)
def test_stages_run_the_commands_of_the_study(study):
    commands = [stage(name, study)[0] for name in stages(study)]
    prepare = [f"paceline prepare {study}"] if study in LISTS["studies"] else []
    held = study in LISTS["predicted_studies"]
    assert commands == [
        *prepare,
        [f"paceline sweep {study}", f"paceline collect {study}"],
        *([f"paceline predict --study {study}"] if held else []),
        f"paceline analyse {study}",
        f"paceline report {study}",
    ]


@pytest.mark.parametrize("study", LISTS["studies"])
def test_records_outlive_a_rerun_and_tables_are_committed(study):
    _, deps, outs = stage("sweep", study)
    assert {"conf", f"experiments/{study}.yaml"} <= set(deps)
    assert outs.pop(f"runs/{study}") == {"persist": True}
    archive = {f"reports/{study}/{ARCHIVE}": {"cache": False}}  # removed before a run
    assert outs == {f"reports/{study}/{each}": {"cache": False} for each in COLLECTED} | archive
    for name in ("prepare", "analyse", "report"):
        assert all(options == {"cache": False} for options in stage(name, study)[2].values())


@pytest.mark.parametrize("study", LISTS["long_studies"] + LISTS["predicted_studies"])
def test_of_a_long_study_the_tables_and_the_archive_are_outputs(study):
    """DVC must not remove the archive before the sweep, which unpacks it."""
    _, deps, outs = stage(stages(study)[0], study)
    assert deps == ["conf", f"experiments/{study}.yaml"]
    archive = {f"reports/{study}/{ARCHIVE}": {"cache": False, "persist": True}}
    assert outs == {f"reports/{study}/{each}": {"cache": False} for each in COLLECTED} | archive


@pytest.mark.parametrize("study", LISTS["predicted_studies"])
def test_predictions_of_a_study_depend_on_what_those_of_published_numbers_do(study):
    _, deps, outs = stage("predict", study)
    rooms = {each for each in PREDICTIONS["deps"] if each.startswith("src/")}
    beside = {"src/paceline/cluster", "src/paceline/model/network_size.py"}
    assert rooms - beside <= set(deps)
    assert {"conf", f"experiments/{study}.yaml", f"reports/{study}/runs.csv"} <= set(deps)
    assert outs == {f"reports/{study}/predictions.csv": {"cache": False}}


@pytest.mark.parametrize("study", STUDIES)
def test_a_page_is_made_of_all_that_was_collected_and_concluded(study):
    analyse, report = (stage(name, study) for name in stages(study)[-2:])
    read, shown, concluded = (
        [f"reports/{study}/{name}" for name in names]
        for names in (collected(study), COLLECTED, CONCLUDED)
    )
    assert sorted(analyse[1]) == sorted([*read, "src/paceline/analysis"])
    assert sorted(analyse[2]) == sorted(concluded)
    assert sorted(report[1]) == sorted([*shown, *concluded, "src/paceline/report"])


@pytest.mark.parametrize("study", LISTS["exchange_studies"])
def test_of_exchanges_the_table_alone_is_collected(study):
    collected = [f"reports/{study}/{name}" for name in ("exchanges.csv", "study.json")]
    tables = f"reports/{study}/tables"
    measure, analyse, report = (stage(name, study) for name in stages(study))
    commands = [f"paceline {name} {study}" for name in ("exchange", "analyse", "report")]
    assert [measure[0], analyse[0], report[0]] == commands
    assert measure[1] == ["conf", f"experiments/{study}.yaml"]
    assert measure[2] == {path: {"cache": False} for path in collected}
    assert analyse[1:] == ([*collected, "src/paceline/analysis"], {tables: {"cache": False}})
    assert report[1] == [*collected, tables, "src/paceline/report"]


@pytest.mark.parametrize("study", [*STUDIES, *LISTS["exchange_studies"]])
def test_what_a_stage_needs_is_in_the_repository_or_made_before(study):
    made = set()
    for name in stages(study):
        _, deps, outs = stage(name, study)
        assert all(dep in made or (ROOT / dep).exists() for dep in deps)
        made |= outs.keys()


@pytest.mark.slow
def test_a_fresh_clone_runs_the_quick_studies_and_none_of_the_long(tmp_path):
    """Made-up outputs are committed to a pipeline, of which a clone lacks runs/ and data/."""
    for name in ("dvc.yaml", ".gitignore", "conf", "experiments"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    files = [each for out in PREDICTIONS["outs"] for each in out] + PREDICTIONS["deps"]
    for study in (*STUDIES, *LISTS["exchange_studies"]):
        for name in stages(study):
            _, deps, outs = stage(name, study)
            files += [*deps, *outs]
    for path in (tmp_path / each for each in files):
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text(path.name)
    dvc(tmp_path, "init", "--no-scm", "--quiet")
    dvc(tmp_path, "commit", "--force", "--quiet")
    assert json.loads(dvc(tmp_path, "status", "--json")) == {}
    for name in ("runs", "data"):
        shutil.rmtree(tmp_path / name)
    changed = {name.partition("@")[2] for name in json.loads(dvc(tmp_path, "status", "--json"))}
    assert changed == set(LISTS["studies"])


def dvc(root, *arguments):
    command = [Path(sys.executable).with_name("dvc"), *arguments]
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout


def test_a_make_of_the_study_leaves_the_long_ones_alone():
    lines = [line.split() for line in (ROOT / "Makefile").read_text().splitlines()]
    assert [line[2:] for line in lines if line[1:2] == ["dvc"]] == [["repro", "report@quick"]]


def test_plots_are_figures_that_a_stage_writes():
    folders = {
        out for study in STUDIES for out in stage(stages(study)[-1], study)[2] if "." not in out
    }
    assert {str(Path(plot).parent) for plot in PIPELINE["plots"]} <= folders
    assert [plot for plot in PIPELINE["plots"] if not (ROOT / plot).is_file()] == []
    assert {Path(plot).suffix for plot in PIPELINE["plots"]} == {".svg"}


def test_the_page_of_plots_shows_each_figure_and_loads_nothing_from_elsewhere(tmp_path):
    for plot in PIPELINE["plots"]:
        (tmp_path / plot).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / plot, tmp_path / plot)
    (tmp_path / "dvc.yaml").write_text(yaml.safe_dump({"plots": PIPELINE["plots"]}))
    dvc(tmp_path, "init", "--no-scm", "--quiet")
    dvc(tmp_path, "plots", "show", "--out", "page")
    page = (tmp_path / "page/index.html").read_text()
    for plot in PIPELINE["plots"]:
        image = f"static/workspace_{plot.replace('/', '_')}"
        assert f'<img src="{image}">' in page
        assert (tmp_path / "page" / image).read_bytes() == (ROOT / plot).read_bytes()
    assert "<script" not in page
    assert "://" not in page
