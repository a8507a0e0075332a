"""Command `paceline check`: the rules of comparison that a study keeps or breaks."""

import argparse
from pathlib import Path

from paceline.command.command import Command


def _run(options: argparse.Namespace, root: Path) -> int:
    """Print a line for each rule; return 1 if one is broken."""
    from paceline.analysis.rules import rules
    from paceline.analysis.tables import read_tables

    found = rules(read_tables(root / "reports" / options.study))
    for _, row in found.iterrows():
        print(f"{row['rule']} {row['verdict']}: {row['asks']}")
        print(f"  {row['evidence']} ({options.study}/{row['place']})")
    return int((found["verdict"] == "broken").any())


COMMAND = Command(
    help="hold its tables to five rules of comparison; exit code 1 if it breaks one",
    run=_run,
    study=True,
)
