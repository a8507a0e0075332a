"""Provenance of a record: the code, commit, package versions and hardware that made it.

This module imports nothing slow.
"""

import ast
import hashlib
import itertools
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypedDict, cast

import psutil

import paceline

ROOMS = ("data", "model", "scheme", "timing", "exchange", "clock", "cluster", "run")
FILES = (
    "random_bits.py",
    *(f"record/{name}.py" for name in ("training", "observed", "certificate", "numbers", "rows")),
)
_NOT_OWN = ("paceline", "hydra_plugins", "conf", "tests", "benchmarks")  # not a project's own code
COMMIT = "PACELINE_COMMIT"  # variable with the commit and the digest of a copy's source
_TOLD = re.compile(r"([0-9a-f]{40}):([0-9a-f]{12})")
_PATIENCE = 10  # s for a program that describes this machine
_PACKAGES = ("paceline", "torch", "torchvision", "pytorch-lightning", "hydra-core", "numpy")


class Hardware(TypedDict):
    """Hardware of a machine.

    `cores`: number of cores that this process may use. `gpus`: names reported by the driver.
    """

    cpu: str
    cores: int
    memory_bytes: int
    gpus: list[str]


def source_digest() -> str:
    """Return a digest of the source code that can change a result: 12 hexadecimal digits.

    The digest covers the part of Paceline's source that computes results, and the code of the
    project in the working directory. Changes of comments, docstrings, layout, and of Paceline's
    error messages leave it the same.
    """
    return _source_digest(Path.cwd())


@cache
def _source_digest(project: Path) -> str:
    return digest_of(Path(paceline.__file__).parent, project)


def digest_of(package: Path, project: Path | None = None) -> str:
    """Return the digest of the source in ROOMS (folders) and FILES of `package`, and of `project`.

    The own code of a project is in `src/` and in the modules and packages at the project's top
    level.
    """
    rooms = itertools.chain.from_iterable((package / room).rglob("*.py") for room in ROOMS)
    files = [each for name in FILES if (each := package / name).exists()]
    found = [(path.relative_to(package).as_posix(), path, True) for path in (*rooms, *files)]
    if project is not None:
        own = ((path.relative_to(project).as_posix(), path) for path in _own_files(project))
        found += [(f"of the project/{name}", path, False) for name, path in own]
    digest = hashlib.sha256()
    for name, path, is_ours in sorted(found):
        digest.update(f"{name}\0".encode())
        digest.update(hashlib.sha256(_meaning(path.read_bytes(), is_ours)).digest())
    return digest.hexdigest()[:12]


def _own_files(project: Path) -> Iterator[Path]:
    """Yield the project's own Python files, but no broken links, which some editors leave."""
    folders = [*project.glob("src/*"), *(init.parent for init in project.glob("*/__init__.py"))]
    own = [each.rglob("*.py") for each in folders if each.name not in _NOT_OWN and each.is_dir()]
    for path in itertools.chain(project.glob("*.py"), project.glob("src/*.py"), *own):
        if path.is_file() and not path.name.startswith("."):
            yield path


def _meaning(source: bytes, is_ours: bool) -> bytes:
    """Return the source without docstrings and comments; if `is_ours`, also without error messages.

    A file that is not valid Python is returned unchanged.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return source
    for node in ast.walk(tree):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if documented and ast.get_docstring(node):
            node.body = node.body[1:] or [ast.Pass()]
    return repr(_form(_WithoutMessages().visit(tree) if is_ours else tree)).encode()


def _form(part: Any) -> Any:
    """Return a part of a syntax tree as nested lists, the same in every version of Python.

    Fields that are empty are left out, since later versions have more of them, and so are the empty
    texts that some put into f-strings. `ast.unparse` and `ast.dump` write other words in another
    version.
    """
    if isinstance(part, list):
        return [_form(each) for each in cast("list[Any]", part)]
    if not isinstance(part, ast.AST):
        return part
    if isinstance(part, ast.JoinedStr):
        part.values = [v for v in part.values if getattr(v, "value", None) != ""]
    fields = [[n, _form(value)] for n, value in ast.iter_fields(part) if value not in (None, [])]
    return [type(part).__name__, *fields]


class _WithoutMessages(ast.NodeTransformer):
    """Removes the texts of raised errors and all assignments to variables named `message`."""

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        for part in ast.walk(node):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                part.value = ""
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        message = any(isinstance(name, ast.Name) and name.id == "message" for name in node.targets)
        return ast.Pass() if message else node


def commit(root: Path = Path()) -> str:
    """Return the commit of the repository at `root`, with `+dirty` if code was changed since.

    The variable PACELINE_COMMIT, as in <commit>:<source_digest() of it>, tells the commit of a copy
    that has no repository, or an older one. It counts if the source has this digest, or if there is
    no repository; then another digest makes the copy dirty. Without both, the result is "".
    """
    head = output("git", "-C", str(root), "rev-parse", "HEAD")
    if told := _TOLD.fullmatch(os.environ.get(COMMIT, "")):
        if told[2] == _source_digest(root.absolute()):
            return told[1]
        if head is None:
            return f"{told[1]}+dirty"
    paths = ("src", ":(glob)*.py")
    changed = output("git", "-C", str(root), "status", "--porcelain", "--", *paths)
    return f"{head}+dirty" if head and changed != "" else head or ""


def versions() -> dict[str, str]:
    """Return the versions of Python and of the most important packages."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def job() -> dict[str, str]:
    """Return the id and the nodes of the Slurm job of this process; {} outside of a job."""
    if "SLURM_JOB_ID" not in os.environ:
        return {}
    number, task = (os.environ.get(f"SLURM_ARRAY_{each}_ID") for each in ("JOB", "TASK"))
    return {
        "job": f"{number}_{task}" if number else os.environ["SLURM_JOB_ID"],
        "nodes": os.environ.get("SLURM_JOB_NODELIST", ""),
    }


def hardware() -> Hardware:
    """Describe this machine."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor() or platform.machine(),
        "cores": num_cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "gpus": [*_gpus()],
    }


@cache
def _gpus() -> tuple[str, ...]:
    """Return the names that the driver reports, which takes it up to a second."""
    names = output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader") or ""
    return tuple(names.splitlines())


def provenance() -> dict[str, Any]:
    """Return the fields of a result that say on what machine and by what code it was made."""
    return {
        "hardware": hardware(),
        "versions": versions(),
        "commit": commit(),
        "source_digest": source_digest(),
    }


def num_cores() -> int:
    """Count the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def output(*command: str, patience: float | None = None) -> str | None:
    """Return the output of `command`; None if it is missing, fails, or takes more than `patience`
    seconds.
    """
    if shutil.which(command[0]) is None:
        return None
    seconds = patience or _PATIENCE
    try:
        done = subprocess.run(command, capture_output=True, timeout=seconds, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace").strip()
