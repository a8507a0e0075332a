"""One fault tried in a tree of its own, by the tests that cover the file, until one fails."""

import importlib.util
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from benchmarks.mutants.faults import Fault

NO_END = "no end"
FORK = multiprocessing.get_context("fork")


def trial(
    tree: Path, fault: Fault, tests: list[str], marked: str, unfit: list[str], limit: float
) -> dict[str, Any]:
    """Verdict (killed, survived, or unfinished after `limit` seconds), the test that failed, and
    seconds. `marked`: pytest's expression for those that are run. `unfit`: tests left out.
    """
    started = time.monotonic()
    with _made(tree, fault):
        options = ["-x", "-m", marked, *(f"--deselect={each}" for each in unfit), *tests]
        failed = failures(tree, options, limit)
    return {
        "verdict": "unfinished" if failed == [NO_END] else "killed" if failed else "survived",
        "by": failed[0] if failed else None,
        "files": len(tests),
        "seconds": round(time.monotonic() - started, 1),
    }


@contextmanager
def _made(tree: Path, fault: Fault) -> Iterator[None]:
    path = tree / fault.path
    source = path.read_text()
    _write(path, fault.text(source))
    try:
        yield
    finally:
        _write(path, source)


def _write(path: Path, text: str) -> None:
    """Without the compiled file: its stamp is of size and second, which may both be the same."""
    path.write_text(text)
    Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)


def failures(tree: Path, options: list[str], limit: float) -> list[str]:
    """Of pytest in a fork of this process, which has imported what takes long."""
    here, there = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_pytest, args=(tree, options, there))
    process.start()
    there.close()
    try:
        return here.recv() if here.poll(limit) else [NO_END]
    except EOFError:
        return ["the interpreter died"]
    finally:
        _end(process.pid)
        process.join()


def _end(pid: int | None) -> None:
    family = psutil.Process(pid)
    for each in [*family.children(recursive=True), family]:
        each.kill()


def _pytest(tree: Path, options: list[str], answer: Connection) -> None:
    os.chdir(tree)
    log = os.open(tree.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ["PYTHONPATH"] = str(tree / "src")
    sys.path[:0] = [str(tree / "src"), str(tree)]
    for name in [name for name in sys.modules if name.split(".")[0] == "benchmarks"]:
        del sys.modules[name]
    import pytest

    seen = Failures()
    own = ["-q", "-p", "no:cacheprovider", f"--basetemp={tree.with_suffix('.tmp')}"]
    code = pytest.main([*own, *options], plugins=[seen])
    answer.send(seen.found or ([f"pytest ended with {code}"] if code in (2, 3, 4) else []))


class Failures:
    """Of tests, and of test files that cannot be imported."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.found.append(report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.found.append(report.nodeid)
