"""What the pages say of the code is there, and what they tell a reader to type works.

Links, files, modules, names and numbers; and the commands, in a fresh clone, page by page.
"""

import importlib
import json
import os
import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import yaml

from tests.command.test_new_project import ANYBODY

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
    expected = json.loads((ROOT / "reports/grid/metrics.json").read_text())["top1"]
    for workers in (1, 4, 16, 64):
        mean = expected[f"allreduce x{workers} batch 32 slow_workers 0 epochs 5 tuned"]
        assert means.loc[workers, "sync_allreduce"] == pytest.approx(mean, abs=1e-6)
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


SHELL = re.compile(r"```(bash|console)\n(.*?)```|```.*?```|`([^`]+)`", re.DOTALL)
INLINE = r"(?:paceline \w+|dvc|git|kubectl|make|mlflow|pip|python|torchrun) \S"
NOT_HERE = {
    "make docs": ".ci/run does",
    "make range PYTHON=python3.12": "installs another environment",
    "make lint": "without an environment of its own; .ci/run does",
    "make lint test": ".ci/run does",
    "make test-slow": ".ci/run does",
    "pip install git+URL_OF_THIS_REPOSITORY": "takes 7 GB; test_new_project.py has the wheel",
    "paceline calibrate && paceline predict cluster=this_machine workers=2,4,8": "measures alone",
    "dvc repro report@meetings": "the reader writes its stage",
    "kubectl apply -f docs/kubernetes.yaml": "Kubernetes",
}
BARE = "measurement.evaluations=0 measurement.mlflow.tracking_uri=null"
CHEAPER = {  # the same, on less
    r"^paceline train (?!-).*": rf"\g<0> {BARE}",
    r"^paceline train (?!--|.*samples|.*workers=\d\d).*": r"\g<0> training.samples=512",
    r"^paceline train .*workers=\d\d.*": r"\g<0> training.samples=8192",  # of one round
    r"^torchrun --nnodes=2 --nproc-per-node=2(.*)10.0.0.1(.*)": (
        r"torchrun --nnodes=1 --nproc-per-node=4\g<1>127.0.0.1\2 --dry-run"
    ),
    r"^paceline sweep (STUDY|first) (?!--dry-run).*": r"\g<0> --dry-run",
    r"hydra/sweeper=optuna": r"\g<0> hydra.sweeper.n_trials=2",
    r"^python -m pytest .*": r"\g<0> --collect-only --quiet",
    r"^mlflow ui .*": r"timeout 10 \g<0> || test $? = 124",
}
STANDS_FOR = {
    "COMMAND": "train",
    "cluster=mine": "cluster=dgx_a100",
    "model=mine": "model=small_cnn",
    "KEY": "$(ls -t runs/adhoc | sed -n 2p)",  # the run before the last is on a modelled cluster
    "STUDY": "kumar2017_placement",
}
SMALL = {  # in files of studies
    r'batch_size: "32,128"': "batch_size: 128",
    r"seed: (range\(0,\d\)|0,1,2)": "seed: 0",
    r"training.samples: 10000": "training.samples: 1000",
    r'workers: "2,8,32"': "workers: 2",
    r"(epochs|rounds|trials): \d": r"\1: 1",
}


def commands_of(page):
    """In order: those of blocks for a shell, and inline those with arguments."""
    for kind, block, inline in SHELL.findall(page.read_text()):
        prompt = "$ " if kind == "console" else ""
        lines = re.sub(r"\\\n *", "", block).splitlines()
        typed = [line.removeprefix(prompt) for line in lines if line.startswith(prompt)]
        typed += [" ".join(inline.split())] if re.match(INLINE, inline) else []
        yield from filter(None, (re.sub(r"(^|\s+)#.*", "", line) for line in typed))


def replaced(text, patterns):
    for pattern, by in patterns.items():
        text = re.sub(pattern, by, text)
    return text


def script(page):
    """The commands of a page; those about a project of the reader in this project."""
    commands = [each for each in commands_of(page) if each not in NOT_HERE]
    if "sweep first" in " ".join(commands) and "paceline init" not in " ".join(commands):
        yield "paceline init my_project"
    for command in commands:
        typed = replaced(replaced(command, CHEAPER), STANDS_FOR)
        if "sweep first" in command or "model=own" in command:
            typed = f"(test ! -d my_project || cd my_project; {typed})"
        yield f"{{ {typed}; }} || {{ echo failed: {shlex.quote(typed)}; exit 1; }}"


@pytest.fixture
def clone(tmp_path):
    """A fresh clone, whose environment is this one, with less to train."""
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    (clone / ".venv/bin").mkdir(parents=True)
    (clone / ".venv/bin/activate").symlink_to(Path(sys.executable).with_name("activate"))
    (clone / ".venv/.ready").touch()
    make_small(clone / "experiments/quick.yaml")
    make_small(clone / "src/paceline/command/project/experiments/first.yaml")
    return clone


def make_small(study):
    study.write_text(replaced(study.read_text(), SMALL))


def add_files(page, clone):
    """Add the files that a page tells its reader to write."""
    for name in NEW.findall(page.read_text()):
        language = {".py": "python", ".yaml": "yaml"}[Path(name).suffix]
        block = re.search(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)
        (clone / name).write_text(block[1])
        if name.startswith("experiments/"):
            make_small(clone / name)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", [page for page in PAGES if [*script(page)]], ids=lambda p: p.stem)
def test_every_command_of_a_page_works(page, clone):
    add_files(page, clone)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    of_clone = {"PATH": path, "PYTHONPATH": str(clone / "src"), "BROWSER": "true"}
    command = ["bash", "-c", "\n".join(script(page))]
    environment = {**os.environ, **ANYBODY, **of_clone}
    done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def test_every_exception_is_of_a_command_that_a_page_shows():
    shown = {command for page in PAGES for command in commands_of(page)}
    assert [command for command in NOT_HERE if command not in shown] == []
    rules = (*CHEAPER, *STANDS_FOR)
    assert [rule for rule in rules if not re.search(rule, "\n".join(shown), re.MULTILINE)] == []
