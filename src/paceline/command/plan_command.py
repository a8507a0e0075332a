"""Command `paceline plan`: how a step should be carried out, and by how many workers."""

import argparse
import math
import sys
from pathlib import Path
from typing import Any

from paceline.command import Command
from paceline.errors import SettingError


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    memory = "limit, such as 40MB or 2GB; default: what is free"
    parser.add_argument("--memory", metavar="SIZE", help=memory)
    study = "its report has the number of updates to its target, by batch size"
    parser.add_argument("--study", help=study)
    rounds = "of each measurement; the least for whole steps"
    parser.add_argument("--rounds", type=int, default=7, help=rounds)
    seconds = "time for whole steps by the fastest plans"
    parser.add_argument("--seconds", type=float, default=60.0, help=seconds)
    verify = "measure the choice again beside other plans"
    parser.add_argument("--verify", action="store_true", help=verify)
    parser.add_argument("--json", metavar="FILE", help="write the plans to a file")


def _run(options: argparse.Namespace, root: Path) -> int:
    from paceline.cluster.supervisor import ProcessFailure
    from paceline.cluster.virtual import VirtualCluster
    from paceline.command.terminal import show
    from paceline.record.point import Point
    from paceline.study.compose import composed_each

    _check(options)
    each_composed = composed_each(options.overrides, root)
    points = [Point.of(each.config) for each in each_composed]
    if isinstance(points[0].cluster, VirtualCluster):
        from paceline.command.plan_view import lemma_view
        from paceline.prediction.lemma import lemma_rows

        for name in ("memory", "study", "verify", "json"):
            if getattr(options, name):
                message = "a modelled cluster is planned by lemmas only; leave this option out"
                raise SettingError(name, message)
        show(lemma_view(lemma_rows(points)))
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


def _plan(options: argparse.Namespace, points: list[Any], root: Path) -> None:
    from paceline.command.plan_view import as_json, peak_view, plan_view, verified_view
    from paceline.command.terminal import show
    from paceline.prediction.plan import bytes_of, in_process, plan_batches, updates_to_target
    from paceline.prediction.race import compare, plan_peak, verify

    names = points[0].config.names
    memory = bytes_of(options.memory, points[0].device)
    updates = {}
    if options.study:
        updates = updates_to_target(root / "reports" / options.study, names["model"], names["data"])
        if not updates.keys() & {point.batch_size for point in points}:
            known = ", ".join(map(str, sorted(updates))) or "none"
            message = f"{options.study} tells updates to its target only for batch_size={known}"
            raise SettingError("study", message)
    planned = plan_batches(points, memory, updates, options.rounds)
    compared = compare(points, planned, memory, options.rounds, options.seconds)
    show(plan_view(planned, compared, memory))
    verified = []
    if options.verify:
        show(peak_view(planned, [in_process(plan_peak, point, {}) for point in points]))
        point = points[planned.index(compared[0].planned)]
        verified = verify(point, compared[0], memory, options.rounds, options.seconds)
        show(verified_view(verified))
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
