"""Print every benchmark as one table; exit 1 where a target is missed. Names choose some."""

import importlib
import sys
from typing import Any

MODULES = ("loader", "synchronous", "parameter_server", "asynchronous", "launch", "logging_cost")


def main() -> int:
    chosen = sys.argv[1:] or MODULES
    found = []
    for name in chosen:
        for row in importlib.import_module(f"benchmarks.{name}").rows():
            found.append(row)
            print(_line(row), flush=True)
    missed = [row["name"] for row in found if not row["holds"]]
    print(f"{len(found) - len(missed)} of {len(found)} targets hold")
    return 1 if missed else 0


def _line(row: dict[str, Any]) -> str:
    ours, theirs = (f"{row[side]:>12,.4g} {row['unit']:9}" for side in ("ours", "theirs"))
    verdict = "holds" if row["holds"] else "MISSED"
    return f"{row['name']:70}{ours}{theirs}{row['ratio']:>9.3f}  {row['target']:8} {verdict}"


if __name__ == "__main__":
    sys.exit(main())
