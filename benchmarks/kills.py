"""Random kills of the processes of sweeps: python -m benchmarks.kills [NUMBER] [SEED].

Each is a sweep of three points of one scheme on real processes, a signal at a random moment to one
of its processes, and the same sweep again. What may not be: a sweep that goes on for 30 s longer
than one that nobody disturbs, a process that is alive 5 s after its sweep, a record that is lost,
doubled or half-written, anything in /dev/shm, a partial record.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import yaml

from paceline.command.init_command import new_project
from paceline.record.reading import fault_of, read_result

SCHEMES = (
    "sync_allreduce",
    "async_parameter_server",
    "stale_synchronous",
    "sync_parameter_server",
    "mixed",
    "sync_then_async",
    "local_sgd",
    "post_local_sgd",
    "elastic_averaging",
    "gossip",
    "independent",
)
SHARED = Path("/dev/shm")
POINTS, LONGER, ORPHANS = 3, 30.0, 5.0  # and seconds
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGINT)
STUDY = {
    "defaults": [{"override /data": "synthetic"}],
    "question": "Does it outlive a kill?",
    "data": {"num_train": 2000, "num_validation": 200, "num_test": 200},
    "workers": 2,
    "training": {"epochs": 15},
    "measurement": {"mlflow": {"tracking_uri": None}},
    "hydra": {"sweeper": {"params": {"seed": f"range(0,{POINTS})"}}},
}


class Blow(NamedTuple):
    """A signal to one of the processes of a sweep, some seconds after its begin."""

    scheme: str
    jobs: int
    seconds: float
    victim: str
    signal: signal.Signals


class Outcome(NamedTuple):
    """What came of it; every number but the last two should be 0."""

    hangs: int
    orphans: int
    lost: int
    unfit: int
    left: int
    unfinished: int
    code: int | None


def main() -> int:
    number, seed = (int(word) for word in (*sys.argv[1:], "60", "0")[:2])
    draw, total = random.Random(seed), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        new_project(root)
        for scheme in SCHEMES:
            _write_study(root, f"quiet_{scheme}", scheme)
        quiet = {scheme: _quiet(root, scheme) for scheme in SCHEMES}
        for turn in range(number):
            scheme = SCHEMES[turn % len(SCHEMES)]
            blow = Blow(
                scheme,
                draw.choice((1, 1, 2)),
                draw.uniform(1, quiet[scheme]),
                draw.choice(("sweep", "worker", "worker", "forkserver")),
                draw.choice(SIGNALS),
            )
            found = _tried(root, f"kill_{turn}", blow, quiet[scheme])
            total.update({name: value for name, value in found._asdict().items() if name != "code"})
            print(turn, *blow, dict(found._asdict()), flush=True)
    print(f"{number} kills: {dict(total)}")
    return int(any(value for name, value in total.items() if name != "unfinished"))


def _write_study(root: Path, study: str, scheme: str) -> None:
    defaults = [*STUDY["defaults"], {"override /scheme": scheme}]
    text = yaml.safe_dump({**STUDY, "defaults": defaults, "study": study}, sort_keys=False)
    (root / "experiments" / f"{study}.yaml").write_text(f"# @package _global_\n{text}")


def _sweep(root: Path, study: str, jobs: int) -> subprocess.Popen[bytes]:
    program = Path(sys.executable).with_name("paceline")
    log = (root / f"{study}.log").open("ab")
    return subprocess.Popen(
        [program, "sweep", study, f"sweep.jobs={jobs}", "sweep.rerun=failed"],
        cwd=root,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def _quiet(root: Path, scheme: str) -> float:
    """Seconds of a sweep that nobody disturbs."""
    started = time.monotonic()
    if _sweep(root, f"quiet_{scheme}", 1).wait():
        raise RuntimeError((root / f"quiet_{scheme}.log").read_text())
    return time.monotonic() - started


def _tried(root: Path, study: str, blow: Blow, quiet: float) -> Outcome:
    """Give the blow, repeat the sweep, and look at what is left."""
    _write_study(root, study, blow.scheme)
    shared = set(SHARED.iterdir())
    sweep = _sweep(root, study, blow.jobs)
    time.sleep(blow.seconds)
    family = _family(sweep.pid)
    _strike(sweep, family, blow)
    finished = _finished(root, study)
    hangs = 0
    try:
        code = sweep.wait(quiet + LONGER)
    except subprocess.TimeoutExpired:
        hangs, code = 1, None
        os.killpg(sweep.pid, signal.SIGKILL)
        sweep.wait()
    time.sleep(ORPHANS)
    orphans = [process for process in family if _alive(process)]
    for process in orphans:
        process.kill()
    again = _sweep(root, study, 1).wait()
    records = [path.parent for path in (root / "runs" / study).glob("[!.]*/result.json")]
    statuses = Counter((read_result(folder) or {"status": "unfit"})["status"] for folder in records)
    hidden = [path for path in (root / "runs" / study).glob(".*") if path.name != ".hydra"]
    return Outcome(
        hangs=hangs,
        orphans=len(orphans),
        lost=sum(path.stat().st_mtime_ns != when for path, when in finished.items()),
        unfit=sum(fault_of(folder) is not None for folder in records) + abs(POINTS - len(records)),
        left=len(hidden) + len(set(SHARED.iterdir()) - shared),
        unfinished=POINTS - statuses["finished"] + again,
        code=code,
    )


def _finished(root: Path, study: str) -> dict[Path, int]:
    """Finished records, and when each was written: the next sweep may not touch them."""
    paths = (root / "runs" / study).glob("[!.]*/result.json")
    done = [path for path in paths if (read_result(path.parent) or {}).get("status") == "finished"]
    return {path: path.stat().st_mtime_ns for path in done}


def _family(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _strike(sweep: subprocess.Popen[bytes], family: list[psutil.Process], blow: Blow) -> None:
    """Send the signal to the sweep, to its first child, or to one of its latest ones."""
    if blow.victim == "sweep" or not family:
        if blow.signal == signal.SIGINT:
            os.killpg(sweep.pid, signal.SIGINT)  # as of a terminal
        else:
            sweep.send_signal(blow.signal)
        return
    victim = family[0] if blow.victim == "forkserver" else family[-1]
    with suppress(psutil.NoSuchProcess):
        victim.send_signal(blow.signal)


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


if __name__ == "__main__":
    sys.exit(main())
