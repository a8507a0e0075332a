"""Where a number comes from: code, commit, versions, hardware. Nothing slow is imported."""

import ast
import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypedDict

import psutil

import paceline

ROOMS = ("data", "model", "scheme", "timing", "exchange", "engine", "wall_clock", "virtual_clock")
ROOMS += ("cluster", "measurement", "run")
FILES = ("random_bits.py", "record/training.py")
_PACKAGES = ("paceline", "torch", "torchvision", "pytorch-lightning", "hydra-core", "numpy")


class Hardware(TypedDict):
    """`cores`: that this process may use. `gpus`: names, asked of the driver, not of CUDA."""

    cpu: str
    cores: int
    memory_bytes: int
    gpus: list[str]


@cache
def source_digest() -> str:
    """Return 12 hexadecimal digits of the source that can change a result.

    Words do not count: comments, docstrings, layout, and what an error says.
    """
    return digest_of(Path(paceline.__file__).parent)


def digest_of(package: Path) -> str:
    """Return the digest of the source of a package that has ROOMS and FILES."""
    digest = hashlib.sha256()
    for path in sorted(_files(package)):
        digest.update(f"{path.relative_to(package).as_posix()}\0".encode())
        digest.update(hashlib.sha256(_meaning(path.read_text()).encode()).digest())
    return digest.hexdigest()[:12]


def _files(package: Path) -> Iterator[Path]:
    for room in ROOMS:
        yield from (package / room).rglob("*.py")
    yield from (package / name for name in FILES if (package / name).exists())


def _meaning(source: str) -> str:
    """Return the source without its words: two texts that do the same to a run are equal."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(_WithoutMessages().visit(tree))


class _WithoutMessages(ast.NodeTransformer):
    """Blanks the text of each error that is raised, and of what it is made of beforehand."""

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        for part in ast.walk(node):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                part.value = ""
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        message = any(isinstance(name, ast.Name) and name.id == "message" for name in node.targets)
        return ast.Pass() if message else node


def commit(root: Path = Path()) -> str:
    """Commit of the repository at `root`; `+dirty` where what a run depends on differs from it.

    Empty outside a repository, or without git.
    """
    head = _output("git", "-C", str(root), "rev-parse", "HEAD")
    paths = ("src", "conf", "experiments")  # reports and dvc.lock change with every study
    changed = _output("git", "-C", str(root), "status", "--porcelain", "--", *paths)
    return f"{head}+dirty" if changed else head


def versions() -> dict[str, str]:
    """Of Python and of the installed packages, by name."""
    return {"python": platform.python_version()} | {
        name: installed for name in _PACKAGES if (installed := _version(name))
    }


def hardware() -> Hardware:
    """Tell what this machine is."""
    return {
        "cpu": _cpu_model(),
        "cores": num_cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "gpus": _output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader").splitlines(),
    }


def num_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_model() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _output(*command: str) -> str:
    """What `command` prints; empty where it is missing or fails."""
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
