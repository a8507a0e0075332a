"""Try one-line faults in copies of a commit, and print which of them the tests notice.

    python -m benchmarks.mutants [--commit HEAD] [--jobs 2] [--files 12] [--slow] [--again KEY ...]

Results are added to a file as they come; what stands there is not tried again, but for the keys
named by `--again`, or all that survived by `--again survived`. In the end the tests that failed are
run without a fault: one that fails again says nothing, and its faults are tried without it.
"""

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.mutants.drawn import drawn
from benchmarks.mutants.faults import Fault
from benchmarks.mutants.selection import Selection
from benchmarks.mutants.table import is_good, table
from benchmarks.mutants.trial import FORK, failures, trial

ROOT = Path(__file__).parents[2]
SLOW_TO_IMPORT = (
    "torch",
    "torchvision",
    "torchmetrics",
    "pytorch_lightning",
    "pandas",
    "scipy.stats",
    "vl_convert",
    "pydantic",
)
_tree: Path  # of this process of the pool


def main() -> int:
    asked = _asked()
    commit = _git("rev-parse", asked.commit)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, _tree_of(commit, folder) as root:
        faults = drawn(root, asked.number, asked.seed)
        done = _results(asked.results)
        again = {key for key, each in done.items() if each["verdict"] in asked.again}
        again |= set(asked.again)
        missing = [each for each in faults if each.key in again or each.key not in done]
        print(f"{len(faults)} faults, {len(missing)} to try", file=sys.stderr)
        if missing:
            _try(missing, commit, asked, Path(folder), Selection(root))
    found = _results(asked.results)
    print(table([(fault, found[fault.key]) for fault in faults], commit, asked.seed))
    return 0 if is_good([(fault, found[fault.key]) for fault in faults]) else 1


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants")
    parser.add_argument("--commit", default="HEAD", help="whose source and tests are tried")
    parser.add_argument("--number", type=int, default=150, help="of faults beside the known ones")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--files", type=int, default=12, help="of tests per fault, at most")
    parser.add_argument("--slow", action="store_true", help="also by tests that are marked slow")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for a fault's tests")
    parser.add_argument("--again", nargs="*", default=[])
    parser.add_argument("--results", type=Path, default=ROOT / "runs/mutants.jsonl")
    return parser.parse_args()


def _try(
    faults: list[Fault], commit: str, asked: argparse.Namespace, folder: Path, covering: Selection
) -> None:
    for name in SLOW_TO_IMPORT:
        importlib.import_module(name)
    asked.results.parent.mkdir(parents=True, exist_ok=True)
    unfit = list[str]()
    with ProcessPoolExecutor(
        asked.jobs, mp_context=FORK, initializer=_begin, initargs=(commit, folder)
    ) as pool:
        while faults:
            found = _results_of(pool, faults, commit, asked, covering, unfit)
            tests = {result["by"] for result in found.values() if result["verdict"] == "killed"}
            known = sorted(each for each in tests if each.startswith("tests/"))
            unfit += pool.submit(_failures, known, asked).result() if known else []
            faults = [fault for fault, result in found.items() if result["by"] in unfit]


def _results_of(
    pool: ProcessPoolExecutor,
    faults: list[Fault],
    commit: str,
    asked: argparse.Namespace,
    covering: Selection,
    unfit: list[str],
) -> dict[Fault, dict[str, Any]]:
    marked = _marked(asked)
    waited, found = dict[Future[dict[str, Any]], Fault](), dict[Fault, dict[str, Any]]()
    for fault in sorted(faults, key=lambda each: covering.weight(each.path)):
        tests = covering.tests_for(fault.path, asked.files)
        waited[pool.submit(_tried, fault, tests, marked, unfit, asked.limit)] = fault
    with asked.results.open("a") as file:
        for count, each in enumerate(as_completed(waited), 1):
            fault, result = waited[each], each.result()
            found[fault] = result
            file.write(f"{json.dumps({'commit': commit[:12], **fault._asdict(), **result})}\n")
            file.flush()
            print(count, fault.key, fault.path, *result.values(), file=sys.stderr, flush=True)
    return found


def _begin(commit: str, folder: Path) -> None:
    global _tree
    _tree = folder / f"tree{FORK.current_process().pid}"
    _git("worktree", "add", "--detach", str(_tree), commit)


def _tried(
    fault: Fault, tests: list[str], marked: str, unfit: list[str], limit: float
) -> dict[str, Any]:
    return trial(_tree, fault, tests, marked, unfit, limit)


def _failures(tests: list[str], asked: argparse.Namespace) -> list[str]:
    return failures(_tree, ["-m", _marked(asked), *tests], asked.limit)


def _marked(asked: argparse.Namespace) -> str:
    return "not gpu" if asked.slow else "not slow and not gpu"


@contextmanager
def _tree_of(commit: str, folder: str) -> Iterator[Path]:
    root = Path(folder) / "read"
    _git("worktree", "add", "--detach", str(root), commit)
    try:
        yield root
    finally:
        for each in Path(folder).iterdir():
            if (each / ".git").exists():
                _git("worktree", "remove", "--force", str(each))


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def _results(path: Path) -> dict[str, dict[str, Any]]:
    """The latest of each fault."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {each["key"]: each for each in map(json.loads, lines)}


if __name__ == "__main__":
    sys.exit(main())
