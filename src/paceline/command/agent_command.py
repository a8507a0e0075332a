"""Run this machine's part of runs of several machines, cluster=agents.

Their head is `paceline train` or a sweep, on another machine or this one.
"""

import argparse
from pathlib import Path

_PATIENCE = 600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    head = "where the head listens; by default the environment variable PACELINE_HEAD"
    parser.add_argument("head", metavar="HOST:PORT", nargs="?", help=head)
    patience = f"time to wait for the head; {_PATIENCE:g}"
    parser.add_argument(
        "--patience", type=float, default=_PATIENCE, metavar="SECONDS", help=patience
    )


def run(options: argparse.Namespace, root: Path) -> int:
    from paceline.cluster.agent_wire import agent_key, head
    from paceline.cluster.node_agent import serve
    from paceline.record.provenance import source_digest

    serve(head(options.head), agent_key(), source_digest(), options.patience)
    return 0
