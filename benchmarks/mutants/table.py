"""What came of the faults as Markdown: a line per room, then who survived and why that may be."""

from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from benchmarks.mutants.faults import Fault

EXPLAINED = Path(__file__).with_name("explained.yaml")
MOST = 0.05  # that may survive
Found = list[tuple[Fault, dict[str, Any]]]


def table(found: Found, commit: str, seed: int) -> str:
    tried, killed = Counter[str](), Counter[str]()
    for fault, result in found:
        tried[fault.room] += 1
        killed[fault.room] += result["verdict"] == "killed"
    rows = [
        f"| {room} | {tried[room]} | {killed[room]} | {tried[room] - killed[room]} |"
        for room in sorted(tried)
    ]
    total, dead = tried.total(), killed.total()
    share = f"{(total - dead) / total:.1%}"
    return "\n".join(
        [
            f"Faults drawn from {commit[:12]} with seed {seed}: {dead} of {total} killed, {share} "
            "survive.\n",
            "| room | faults | killed | survived |\n|---|---|---|---|",
            *rows,
            f"| **all** | {total} | {dead} | {total - dead} |\n",
            "| survivor | line | becomes | why |\n|---|---|---|---|",
            *(_survivor(fault) for fault, _ in _survivors(found)),
        ]
    )


def is_good(found: Found) -> bool:
    survivors = _survivors(found)
    return len(survivors) <= MOST * len(found) and all(_reason(each) for each, _ in survivors)


def _survivors(found: Found) -> Found:
    return [(fault, result) for fault, result in found if result["verdict"] != "killed"]


def _survivor(fault: Fault) -> str:
    place = f"{fault.path.removeprefix('src/paceline/')}:{fault.line}"
    before, after = (text.strip().replace("|", "\\|") for text in (fault.before, fault.after))
    shown = after.replace("\n", "; ")
    return f"| `{fault.key}` {place} | `{before}` | `{shown}` | {_reason(fault) or ''} |"


def _reason(fault: Fault) -> str | None:
    return yaml.safe_load(EXPLAINED.read_text()).get(fault.key)
