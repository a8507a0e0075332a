"""Command `paceline plan`: how a step should be carried out, and by how many workers."""

import argparse
import math
import sys
from pathlib import Path
from typing import Any

from paceline.command.command import Command
from paceline.errors import SettingError


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--memory", metavar="SIZE", help="40MB, 2GB; else what is free")
    parser.add_argument("--study", help="whose reports tell the updates to its target")
    parser.add_argument(
        "--rounds", type=int, default=7, help="of each measurement; of whole steps at least"
    )
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="for whole steps by the fastest plans"
    )
    parser.add_argument(
        "--verify", action="store_true", help="measure whole steps by feasible plans"
    )
    parser.add_argument("--json", metavar="FILE", help="write the plans to a file")


def _run(options: argparse.Namespace, root: Path) -> int:
    from paceline.cluster.supervisor import ProcessFailure
    from paceline.cluster.virtual import VirtualCluster
    from paceline.record.point import Point
    from paceline.study.compose import composed_each

    _check(options)
    each_composed = composed_each(options.overrides, root)
    points = [Point.of(each.config) for each in each_composed]
    if isinstance(points[0].cluster, VirtualCluster):
        from paceline.planning.lemma_table import lemma_rows, lemma_table

        _check_modelled(options)
        print(lemma_table(lemma_rows(points)))
        return 0
    if others := {name for each in each_composed for name in each.swept} - {"batch_size"}:
        raise SettingError(min(others), "a plan compares batch sizes; give one value")
    try:
        _plan(options, points, root)
    except ProcessFailure as failure:
        print(f"paceline: {failure}", file=sys.stderr)
        return 1
    return 0


def _check(options: argparse.Namespace) -> None:
    if options.json and not Path(options.json).parent.is_dir():
        raise SettingError("json", f"there is no folder {Path(options.json).parent}")
    if options.json and Path(options.json).is_dir():
        raise SettingError("json", f"{options.json} is a folder; a file is needed")
    if options.rounds < 1:
        raise SettingError("rounds", f"1 or more are needed, not {options.rounds}")
    if not 0 <= options.seconds < math.inf:
        raise SettingError("seconds", f"0 or more are needed, not {options.seconds}")


def _check_modelled(options: argparse.Namespace) -> None:
    """Refuse what a modelled cluster, of which there are the lemmas alone, would not heed."""
    for name in ("memory", "study", "verify", "json"):
        if getattr(options, name):
            raise SettingError(
                name, "of a modelled cluster there are the lemmas alone; leave it out"
            )


def _plan(options: argparse.Namespace, points: list[Any], root: Path) -> None:
    from paceline.planning.plan import bytes_of, plan_batches
    from paceline.planning.plan_json import as_json
    from paceline.planning.plan_table import table
    from paceline.planning.shortlist import compare
    from paceline.planning.updates_to_target import updates_to_target
    from paceline.planning.verified_table import peak_table, verified_table
    from paceline.planning.verify import measured_peak, verify

    names = points[0].config.names
    memory = bytes_of(options.memory, points[0].device)
    updates = {}
    if options.study:
        updates = updates_to_target(root / "reports" / options.study, names["model"], names["data"])
        if not updates.keys() & {point.batch_size for point in points}:
            known = ", ".join(map(str, sorted(updates))) or "none"
            message = f"{options.study} tells updates to its target for batch_size={known} alone"
            raise SettingError("study", message)
    planned = plan_batches(points, memory, updates, options.rounds)
    compared = compare(points, planned, memory, options.rounds, options.seconds)
    print(table(planned, compared, memory))
    verified = []
    if options.verify:
        peaks = [measured_peak(point, {}) for point in points]
        print(f"\n{peak_table(planned, peaks)}")
        point = points[planned.index(compared[0].planned)]
        verified = verify(point, compared[0], memory, options.rounds, options.seconds)
        print(f"\n{verified_table(verified)}")
    if options.json:
        Path(options.json).write_text(as_json(planned, compared, verified, memory))


COMMAND = Command(
    help="""\
batch size, and layout, recomputation and precision of each block, within memory:
`paceline plan model=resnet18 batch_size=32,64 --memory 200MB`; --verify measures
the choice again; with cluster=titan, workers and servers by the lemmas of Zou 2017""",
    run=_run,
    settings=True,
    add_arguments=_add_arguments,
)
