"""Print every benchmark, or those named, as one Markdown table; exit 1 where a target is missed."""

import argparse
import importlib
import sys
from typing import Any

from paceline.record.provenance import commit, hardware, versions

MODULES = (
    "loader",
    "synchronous",
    "parameter_server",
    "links",
    "collectives",
    "asynchronous_throughput",
    "commands",
    "launch",
    "logging_cost",
    "virtual_clock",
    "virtual_engines",
    "gpu_workers",
    "planted_worlds",
    "step_times",
    "page",
    "large_study",
)


def main() -> int:
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MODULES))
    names = parser.parse_args().names
    if unknown := sorted({*names} - {*MODULES}):
        parser.error(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(MODULES)}")
    print(_machine())
    print("\n| what | ours | theirs, or the limit | ratio | target | |\n|---|---|---|---|---|---|")
    found = []
    for name in names or MODULES:
        for row in importlib.import_module(f"benchmarks.{name}").rows():
            found.append(row)
            print(_line(row), flush=True)
    aimed = [row for row in found if row["target"] != "shown"]
    print(f"\n{sum(row['holds'] for row in aimed)} of {len(aimed)} targets hold.")
    return 0 if all(row["holds"] for row in aimed) else 1


def _machine() -> str:
    machine, packages = hardware(), versions()
    gpus = ", ".join(machine["gpus"]) or "no GPU"
    return (
        f"# Benchmarks\n\nMeasured by `make bench`: medians of 3 to 5, by turns in one run. "
        f"{machine['cpu']}, {machine['cores']} cores, {gpus}; Python {packages['python']}, "
        f"torch {packages['torch']}, pytorch-lightning {packages['pytorch-lightning']}; "
        f"commit {commit()[:12]}."
    )


def _line(row: dict[str, Any]) -> str:
    ours, theirs = (f"{_digits(row[side])} {row['unit']}" for side in ("ours", "theirs"))
    verdict = "" if row["target"] == "shown" else "holds" if row["holds"] else "**missed**"
    name = row["name"].replace("  ", "&nbsp;&nbsp;")
    return f"| {name} | {ours} | {theirs} | {row['ratio']:.3f} | {row['target']} | {verdict} |"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())
