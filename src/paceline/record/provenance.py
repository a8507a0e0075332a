"""Provenance of a record: the code, commit, package versions and hardware that made it.

This module imports nothing slow.
"""

import hashlib
import itertools
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

import paceline

ROOMS = ("data", "model", "scheme", "timing", "exchange", "clock", "cluster", "run")
FILES = (
    "random_bits.py",
    *(f"record/{name}.py" for name in ("training", "observed", "certificate", "rows")),
    *(f"record/{name}.py" for name in ("result", "fields")),
)
_NOT_OWN = ("paceline", "hydra_plugins", "conf", "tests", "benchmarks")  # not a project's own code
_PATIENCE = 10  # s for a program that describes this machine
_PACKAGES = ("paceline", "torch", "torchvision", "pytorch-lightning", "hydra-core", "numpy")


def source_digest() -> str:
    """Return a digest of the source code that can change a result: 12 hexadecimal digits.

    The digest is of the bytes of the part of Paceline's source that computes results, and of the
    code of the project in the working directory.
    """
    return digest_of(Path(paceline.__file__).parent, Path.cwd())


@cache
def digest_of(package: Path, project: Path) -> str:
    """Return the digest of the source in ROOMS (folders) and FILES of `package`, and of `project`.

    The own code of a project is in `src/` and in the modules and packages at the project's top
    level.
    """
    rooms = itertools.chain.from_iterable((package / room).rglob("*.py") for room in ROOMS)
    ours = [*rooms, *(each for name in FILES if (each := package / name).exists())]
    found = [(path.relative_to(package).as_posix(), path) for path in ours]
    own = [(path.relative_to(project).as_posix(), path) for path in _own_files(project)]
    digest = hashlib.sha256()
    for name, path in [*sorted(found), *sorted(own)]:
        digest.update(f"{name}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


def _own_files(project: Path) -> Iterator[Path]:
    """Yield the project's own Python files, but no broken links, which some editors leave."""
    folders = [*project.glob("src/*"), *(init.parent for init in project.glob("*/__init__.py"))]
    own = [each.rglob("*.py") for each in folders if each.name not in _NOT_OWN and each.is_dir()]
    for path in itertools.chain(project.glob("*.py"), project.glob("src/*.py"), *own):
        if path.is_file() and not path.name.startswith("."):
            yield path


def commit(root: Path = Path()) -> str:
    """Return the commit of the repository at `root`, with `+dirty` if code was changed since.

    It is "" if there is no repository. For a copy without one, scripts/on_a_gpu.sh tells it by the
    variable PACELINE_COMMIT, as in <commit>:<source_digest() of it>.
    """
    head = output("git", "-C", str(root), "rev-parse", "HEAD")
    told, _, digest = os.environ.get("PACELINE_COMMIT", "").partition(":")
    if told and digest == source_digest():
        return told
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


def hardware() -> dict[str, Any]:
    """Describe this machine: `cores` are those that this process may use, `gpus` are names."""
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
