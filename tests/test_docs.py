"""What the pages say of the code is there: links, files, modules, names, numbers."""

import importlib
import json
import re
import warnings
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")]
PAGES += sorted(DOCS.glob("*.md"))
LINK = re.compile(r"\]\(([^)\s]+)\)")
FILE = re.compile(r"(?<![\w/])((?:src|conf|tests|experiments)/[\w/]+\.(?:py|yaml))")
MODULE = re.compile(r"(?<![\w/])(paceline(?:\.\w+)+)")
IMPORT = re.compile(r"^from (paceline[\w.]*) import (.+)$", re.MULTILINE)
NEW = re.compile(r"`([\w/.]+)` \(new\)")  # what the reader of a page adds


def links_of(page):
    return [link for link in LINK.findall(page.read_text()) if "://" not in link]


def added_files(page):
    return set(NEW.findall(page.read_text()))


def added_modules(page):
    files = (path for path in added_files(page) if path.startswith("src/"))
    return {path.removeprefix("src/").removesuffix(".py").replace("/", ".") for path in files}


def is_there(name):
    """A module, or what hangs on one."""
    module, _, member = name.rpartition(".")
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        return bool(module) and member in vars(importlib.import_module(module))
    return True


def test_every_link_leads_somewhere():
    links = [(page, link) for page in PAGES for link in links_of(page)]
    assert [link for page, link in links if not leads_somewhere(page, link)] == []


def leads_somewhere(page, link):
    """The file is there, and in a page its heading."""
    name, _, heading = link.partition("#")
    target = page.parent / name if name else page
    if not heading or not target.exists():
        return target.exists()
    headings = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
    return heading in [re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings]


def test_every_file_that_a_page_names_is_there_unless_its_reader_adds_it():
    for page in PAGES:
        added = added_files(page)
        named = {name for name in FILE.findall(page.read_text()) if Path(name).stem != "mine"}
        assert [name for name in named - added if not (ROOT / name).is_file()] == [], page
        assert [name for name in added if (ROOT / name).exists()] == [], page


def test_every_module_and_class_that_a_page_names_is_there():
    for page in PAGES:
        text, added = page.read_text(), added_modules(page)
        imports = [(m, name) for m, names in IMPORT.findall(text) for name in names.split(",")]
        names = {*MODULE.findall(text), *(f"{module}.{name.strip()}" for module, name in imports)}
        old = {name for name in names if not any(f"{name}.".startswith(f"{n}.") for n in added)}
        assert sorted(name for name in old if not is_there(name)) == [], page


def test_the_pages_link_every_file_of_docs():
    linked = {Path(link.partition("#")[0]).name for page in PAGES for link in links_of(page)}
    assert {path.name for path in DOCS.iterdir()} <= linked


@pytest.fixture
def example(tmp_path, monkeypatch):
    """Runs the program of a page that begins with its imports; returns its variables."""
    (tmp_path / "reports").symlink_to(ROOT / "reports")
    monkeypatch.chdir(tmp_path)

    def run(page):
        (program,) = re.findall(r"```python\n((?:from|import) .*?)```", page.read_text(), re.DOTALL)
        with warnings.catch_warnings(action="ignore"):  # Lightning's, of BoringModel
            exec(program, variables := {})
        return variables

    return run


def test_the_strategy_of_an_example_trains_all_workers_at_the_same_time(example):
    strategy = example(DOCS / "your_model_and_cluster.md")["strategy"]
    assert strategy.samples == 2 * 64  # two passes over the images of BoringModel, one by one
    assert strategy.seconds(0) == 2 * 64 / 16  # of one second a step


def test_an_example_computes_and_draws_the_means_of_the_report(example, tmp_path):
    means = example(DOCS / "studies.md")["means"]
    expected = json.loads((ROOT / "reports/scale/metrics.json").read_text())["top1"]
    for workers in (1, 4, 16, 64):
        mean = means.loc[workers, ("sync_allreduce", "sgd")]
        assert mean == pytest.approx(expected[f"allreduce x{workers} sgd tuned epochs 5"], abs=1e-6)
    assert (tmp_path / "top1.png").stat().st_size > 10_000


def test_the_kubernetes_manifest_starts_torchrun_in_equal_pods():
    """As far as its syntax tells: the operator finds its container by this name."""
    job = yaml.safe_load((DOCS / "kubernetes.yaml").read_text())
    pods = job["spec"]["pytorchReplicaSpecs"]
    assert job["kind"] == "PyTorchJob"
    assert pods["Master"] == pods["Worker"]
    (container,) = pods["Master"]["template"]["spec"]["containers"]
    assert container["name"] == "pytorch"
    assert container["command"][:3] == ["torchrun", "-m", "paceline"]
