"""What README.md and docs/ tell a reader to type works in a fresh clone, in the order of a page."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command.test_new_project import ANYBODY
from tests.test_docs import NEW, PAGES, ROOT

SHELL = re.compile(r"```(bash|console)\n(.*?)```|```.*?```|`([^`]+)`", re.DOTALL)
INLINE = r"(?:paceline \w+|dvc|git|kubectl|make|mlflow|pip|python|torchrun) \S"
NOT_HERE = {
    "make docs": ".ci/run does",
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
