"""Where a number comes from: code, commit, versions, hardware. Nothing slow is imported."""

import hashlib
import os
import platform
import shutil
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

import paceline

ROOMS = (
    "data",
    "model",
    "scheme",
    "timing",
    "exchange",
    "engine",
    "wall_clock",
    "virtual_clock",
    "cluster",
    "measurement",
    "record",
    "run",
)
_PACKAGES = ("paceline", "torch", "torchvision", "pytorch-lightning", "hydra-core", "numpy")


@cache
def source_digest() -> str:
    """12 hexadecimal digits of the source of the rooms that make a record."""
    return digest_of(Path(paceline.__file__).parent)


def digest_of(package: Path) -> str:
    digest = hashlib.sha256()
    for room in ROOMS:
        for path in sorted((package / room).rglob("*.py")):
            digest.update(f"{path.relative_to(package).as_posix()}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


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


def hardware() -> dict[str, Any]:
    """`cores`: those that this process may use; `gpus`: names, asked of the driver, not of CUDA."""
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
