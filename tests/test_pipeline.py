"""dvc.yaml, the table of contents: every study is in it, and depends on what its points compose."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_dir

from paceline.analysis.claims import read_claims

ROOT = Path(__file__).parent.parent
PIPELINE = yaml.safe_load((ROOT / "dvc.yaml").read_text())
STAGES = PIPELINE["stages"]
LISTS = {name: studies for lists in PIPELINE["vars"] for name, studies in lists.items()}
STUDIES = [*LISTS["reports"], "collectives"]


def sweep(study):
    """The stage that runs the points of a study."""
    return of(STAGES[study], study=study)


def report(study):
    if study == "collectives":
        return of(STAGES["report_collectives"])
    return of(STAGES["report"]["do"], key=study, item=LISTS["reports"][study])


def predict(study):
    return of(STAGES["predict"]["do"], item=study)


def of(stage, **values):
    """A stage: its command, the files that it depends on, and outputs by options."""
    text = json.dumps(stage)
    for name, value in values.items():
        text = text.replace(f"${{{name}}}", value)
    entries = json.loads(text)
    outs = [*entries["outs"], *entries.get("metrics", [])]
    files = [*entries.get("deps", []), *(path for e in entries.get("params", []) for path in e)]
    return entries["cmd"], files, {path: options for out in outs for path, options in out.items()}


def test_every_study_has_a_stage_that_runs_it_and_one_that_reports_it():
    """But for those without results: `dvc repro` of a fresh clone would run them for hours."""
    every = sorted(path.stem for path in (ROOT / "experiments").glob("*.yaml"))
    studies = [e for e in every if e == "quick" or (ROOT / f"reports/{e}/study.json").exists()]
    assert sorted(STUDIES) == studies
    assert [sweep(name)[0] for name in studies] == [f"paceline sweep {name}" for name in studies]
    named = [name for name in studies if "${study}" in STAGES[name]["cmd"]]
    assert {name: STAGES[name]["vars"] for name in named} == {n: [{"study": n}] for n in named}
    others = {"report", "report_collectives", "predict", "published", "papers"}
    assert set(STAGES) - set(studies) == others
    assert STAGES["report"]["foreach"] == "${reports}"
    predicted = [name for name, source in LISTS["reports"].items() if source == "predictions.csv"]
    assert LISTS["predicted"] == predicted


@pytest.mark.parametrize(
    "study", ["quick", *(pytest.param(e, marks=pytest.mark.slow) for e in STUDIES if e != "quick")]
)
def test_a_stage_depends_on_the_settings_that_its_points_compose(study):
    """On no others, so that an added file makes no stage stale."""
    _, files, _ = sweep(study)
    file = yaml.safe_load((ROOT / f"experiments/{study}.yaml").read_text())
    inherited = [each for each in file.get("defaults", []) if isinstance(each, str)]
    own = {f"experiments/{name}.yaml" for name in (study, *inherited)}
    assert own <= {*files}
    assert sorted({*files} - own) == sorted(composed(study))


def composed(study):
    """Files of conf/ that the points of a study compose, but for those that change no result."""
    conf = ROOT / "conf"
    groups = {str(path.relative_to(conf)) for path in conf.rglob("*") if path.is_dir()}
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):

        def choices(*overrides):
            words = [f"experiments={study}", *overrides]
            config = compose("config", words, return_hydra_config=True)
            return config, config.hydra.runtime.choices.items()

        base, chosen = choices()
        found = set(chosen)
        for axes in (base.hydra.sweeper.params or {}, *with_inner(base.grids)):
            for group in groups & {str(axis) for axis in axes}:
                for choice in str(axes[group]).split(","):
                    found |= set(choices(f"{group}={choice.strip()}")[1])
    names = [f"{group}/{choice}" for group, choice in found if not group.startswith("hydra")]
    without = ("experiments/", "sweep/")
    files = [f"conf/{name}.yaml" for name in names if not name.startswith(without)]
    if base.exchange:  # whose predictions are in its own table
        files += [f"conf/cluster/{model}.yaml" for model in base.predicted_by.values()]
    return {"conf/paceline.yaml", *(each for file in files for each in with_inherited(file))}


def with_inner(grids):
    """Grids, and those that they are loops around."""
    for grid in grids or []:
        yield grid
        yield from with_inner(grid.get("grids"))


def with_inherited(file):
    """A file of conf/, if there is one, and those that it inherits from."""
    if not (ROOT / file).is_file():
        return
    yield file
    for each in yaml.safe_load((ROOT / file).read_text()).get("defaults", []):
        if isinstance(each, str) and "@" in each:
            name = each.partition("@")[0]
            folder = "conf" if name.startswith("/") else Path(file).parent
            yield from with_inherited(f"{folder}/{name.lstrip('/')}.yaml")


@pytest.mark.parametrize("study", STUDIES)
def test_an_interruption_loses_nothing_and_a_report_is_made_of_what_was_collected(study):
    (_, _, collected), (command, deps, pages) = sweep(study), report(study)
    assert command == f"paceline report {study}"
    made = {path for path in deps if not path.startswith("src/")}
    assert made - {f"reports/{study}/predictions.csv"} <= set(collected)
    assert all(options["persist"] for options in {**collected, **pages}.values())


def test_only_quick_is_measured_by_each_machine():
    committed = {
        study: {options.get("cache") for options in sweep(study)[2].values()} for study in STUDIES
    }
    assert committed == {study: {False} for study in STUDIES} | {"quick": {None}}
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert {"/reports/quick/", "/reports/index.html"} <= set(ignored)
    assert not (ROOT / "reports/quick/.gitignore").exists()


def test_published_numbers_are_predicted_by_files_that_the_stage_names():
    entries = yaml.safe_load((ROOT / "papers/predictions.yaml").read_text())
    words = {word for e in entries for word in [*e["settings"], *e.get("baseline", [])]}
    groups = ("cluster=", "workload=")
    files = {f"conf/{w.replace('=', '/')}.yaml" for w in words if w.startswith(groups)}
    files = {each for file in files for each in with_inherited(file)}
    assert files == {each for each in of(STAGES["published"])[1] if each.startswith("conf/")}


def test_the_ledger_depends_on_the_table_of_each_study_that_it_judges():
    runs = {claim.runs for claim in read_claims(ROOT) if claim.runs}
    tables = {each if each.endswith(".csv") else f"reports/{each}/runs.csv" for each in runs}
    _, deps, _ = of(STAGES["papers"])
    assert tables | {"reports/predictions/predictions.csv"} == {
        each for each in deps if each.endswith(".csv")
    }


@pytest.mark.slow
def test_predictions_depend_on_every_room_that_they_import():
    """Of the project's own, what they import below the points of a study."""
    code = "import sys, paceline.prediction.published; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    loaded = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    rooms = {name.split(".")[1] for name in loaded if name.startswith("paceline.")}
    for stage in (STAGES["published"], STAGES["predict"]["do"]):
        deps = {Path(each).parts[2] for each in stage["deps"] if each.startswith("src/")}
        beside = {"errors", "settings", "random_bits", "grouped", "record", "study"}
        beside |= {"data", "cluster", "measurement", "model", "run"}
        assert rooms - beside <= deps


@pytest.mark.slow
def test_a_fresh_clone_runs_the_quick_study_and_none_of_the_long(tmp_path):
    """Made-up outputs are committed to a pipeline; a clone lacks what git ignores."""
    for name in ("dvc.yaml", "conf", "experiments", "papers"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    stages = [of(STAGES["published"]), of(STAGES["papers"]), *map(predict, LISTS["predicted"])]
    stages += [find(study) for study in STUDIES for find in (sweep, report)]
    files = [path for _, deps, outs in stages for path in (*deps, *outs)]
    for path in (tmp_path / each for each in files):
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text(path.name)
    dvc(tmp_path, "init", "--no-scm", "--quiet")
    dvc(tmp_path, "commit", "--force", "--quiet")
    assert json.loads(dvc(tmp_path, "status", "--json")) == {}
    shutil.rmtree(tmp_path / "reports/quick")
    (tmp_path / "conf/cluster/of_mine.yaml").write_text("step_seconds: 1")
    changed = json.loads(dvc(tmp_path, "status", "--json"))
    assert set(changed) == {"quick", "report@quick"}


def dvc(root, *arguments):
    command = [Path(sys.executable).with_name("dvc"), *arguments]
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout


def test_make_study_leaves_the_pipeline_alone():
    """What a machine measures is not what the repository shows, and dvc.lock stays as it is."""
    lines = [line.split() for line in (ROOT / "Makefile").read_text().splitlines()]
    study = [line[1:] for line in lines if line[1:2] == ["paceline"]]
    assert study[0] == ["paceline", "sweep", "quick"]
    assert study[-1] == ["paceline", "report", "quick"]
    assert not [line for line in lines if "dvc" in line]


def test_plots_are_figures_that_a_stage_writes():
    folders = {out for study in STUDIES for out in report(study)[2] if "." not in out}
    assert {str(Path(plot).parent) for plot in PIPELINE["plots"]} <= folders
    assert [plot for plot in PIPELINE["plots"] if not (ROOT / plot).is_file()] == []


@pytest.mark.slow
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
