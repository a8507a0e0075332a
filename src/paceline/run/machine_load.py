"""Measures what else happened on this machine during a run: load of others, lack of memory."""

import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from paceline.record.provenance import num_cores

_IDLE = ("idle", "iowait", "guest", "guest_nice")  # user and nice include the times of guests


_CGROUPS = Path("/sys/fs/cgroup")
_OOM_KILL = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


class _Usage(NamedTuple):
    """CPU seconds until a moment: of all cores, and of this process and all that it started."""

    at: float
    of_cores: float
    of_run: float


class MachineLoad:
    """Load of the cores that this process may use, from its construction on.

    The processes of the run must be children of this process, or of its children.
    """

    def __init__(self) -> None:
        self._began = _usage()

    def of_others(self, wanted: int) -> float:
        """Return the CPU time of all other programs, as a share of `wanted` cores."""
        now, began = _usage(), self._began
        others = (now.of_cores - began.of_cores) - (now.of_run - began.of_run)
        cores = min(wanted, num_cores())
        return max(0.0, others) / (max(now.at - began.at, 1e-9) * cores)


def memory_kills() -> int:
    """Return how many processes the kernel has killed so far since memory ran out.

    They are those of the control group of this process, or of the machine if that is unknown.
    """
    group = re.search("^0::/(.*)$", _content(Path("/proc/self/cgroup")), re.MULTILINE)
    events = _CGROUPS / (group[1] if group else "") / "memory.events"
    for path in (events, Path("/proc/vmstat")):
        if found := _OOM_KILL.search(_content(path)):
            return int(found[1])
    return 0


def _content(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _usage() -> _Usage:
    cores = psutil.cpu_times(percpu=True)
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        cores = [cores[core] for core in os.sched_getaffinity(0) if core < len(cores)]
    times = [time for core in cores for time in core._asdict().items()]
    busy = sum(seconds for name, seconds in times if name not in _IDLE)
    own, this = 0.0, psutil.Process()
    for process in (this, *this.children(recursive=True)):
        with suppress(psutil.Error):
            own += sum(process.cpu_times()[:4])  # with its children that have ended
    return _Usage(time.monotonic(), busy, own)
