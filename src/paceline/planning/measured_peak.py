"""Peak of a real step's memory, counted by the allocator; call it in a fresh process."""

import json
import math
import tempfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile, record_function

_PHASE, _ENDED = "phase of work", object()


class Phase(NamedTuple):
    """Bytes of a phase of work: the most while it runs, and those that are left at its end."""

    peak: int
    left: int


class Peak(NamedTuple):
    """Greatest bytes in a process since the step's network was built.

    `allocated`: by torch's allocator. `resident`: growth of the process's resident set, which
    includes what malloc keeps and the libraries' own; None where the system does not tell.
    """

    allocated: int
    resident: int | None


def measure_peak(build: Callable[[], Callable[[], None]], device: torch.device) -> Peak:
    """Measure the second of two steps. `build` makes the network and returns the step.

    Everything is built inside, since a CPU's allocator tells nothing of what was there before; the
    first step makes gradients and the optimizer's state.
    """
    before = _resident("VmRSS", reset=True)
    allocated = (_on_gpu if device.type == "cuda" else _on_cpu)(build)
    peak = _resident("VmHWM")
    return Peak(allocated, None if before is None or peak is None else peak - before)


def _on_gpu(build: Callable[[], Callable[[], None]]) -> int:
    step = build()
    step()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


def _on_cpu(build: Callable[[], Callable[[], None]]) -> int:
    def steps() -> Iterator[None]:
        step = build()
        step()
        yield
        step()

    return phases_on_cpu(steps())[1].peak


def phases_on_cpu(work: Iterator[None]) -> list[Phase]:
    """Run work whose phases end at each `yield`; return their bytes, above those before the first.

    They are added up from the allocator's events, so that they include what an operator allocates
    and frees while it runs, which differs between processors.
    """
    # acc_events: torch 2.11 warns of a process's second profile that it forgets the first
    with profile(
        activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True
    ) as profiler:
        running = True
        while running:
            with record_function(_PHASE):
                running = next(work, _ENDED) is not _ENDED
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    starts = sorted(each["ts"] for each in events if each["name"] == _PHASE)
    changes = [(each["ts"], each["args"]["Bytes"]) for each in events if each["name"] == "[memory]"]
    changes.sort(key=lambda change: change[0])
    found, current = list[Phase](), 0
    for start, end in pairwise([*starts, math.inf]):
        peak = current
        for when, size in changes:
            if start <= when < end:
                current += size
                peak = max(peak, current)
        found.append(Phase(peak, current))
    return found


def _resident(line: str, *, reset: bool = False) -> int | None:
    """Return a line of the process's status [bytes]. `reset`: let the greatest begin anew."""
    status = Path("/proc/self/status")
    if not status.is_file():
        return None
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    found = next(each for each in status.read_text().splitlines() if each.startswith(line))
    return 1024 * int(found.split()[1])
