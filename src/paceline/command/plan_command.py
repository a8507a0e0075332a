"""Command `paceline plan`: how a step should be carried out, and by how many workers."""

import argparse
import gc
import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.command import Command
from paceline.errors import SettingError, tell

if TYPE_CHECKING:  # torch takes seconds
    from paceline.prediction.cluster_plan import Question
    from paceline.prediction.evidence import Evidence
    from paceline.record.point_config import PointConfig


_ROUNDS, _SECONDS = 7, 60.0  # of measurements on this machine


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    memory = "limit, such as 40MB or 2GB; default: what is free"
    parser.add_argument("--memory", metavar="SIZE", help=memory)
    study = "its report has the number of updates to its target, by batch size"
    parser.add_argument("--study", help=study)
    rounds = "of each measurement; the least for whole steps"
    parser.add_argument("--rounds", type=int, help=f"{rounds}; default: {_ROUNDS}")
    seconds = "time for whole steps by the fastest plans"
    parser.add_argument("--seconds", type=float, help=f"{seconds}; default: {_SECONDS:g}")
    page = "write the plan of a modelled cluster to an HTML page"
    parser.add_argument("--page", metavar="FILE", help=page)


def _run(options: argparse.Namespace, root: Path) -> int:
    gc.collect()
    gc.freeze()  # before torch: a library of it complains at the end of what is frozen
    gc.disable()  # a tenth of the time of a modelled cluster, for a hundredth of the memory
    try:
        return _of_settings(options, root)
    finally:
        gc.enable()


def _of_settings(options: argparse.Namespace, root: Path) -> int:
    from paceline.cluster.supervisor import ProcessFailure
    from paceline.prediction.network_by_size import in_precision, own_images
    from paceline.record.point import Point
    from paceline.record.point_config import is_virtual
    from paceline.study.compose import composed_each

    _check(options)
    target, overrides = _target(options.overrides)
    each_composed = composed_each(overrides, root, [own_images, in_precision])
    configs = [each.config for each in each_composed]
    swept = {name for each in each_composed for name in each.swept}
    if is_virtual(configs[0].values["cluster"]):
        _plan_cluster(options, configs, swept, target, root)
        return 0
    points = [Point.of(config) for config in configs]
    for name, value in (("page", options.page), ("target", target)):
        if value is not None:
            raise SettingError(name, "it is of a modelled cluster, as cluster=titan; leave it out")
    if others := swept - {"batch_size"}:
        raise SettingError(min(others), "a plan compares batch sizes; give one value")
    gc.enable()
    try:
        _plan(options, points, root)
    except ProcessFailure as failure:
        tell(str(failure))
        return 1
    return 0


def _target(overrides: Sequence[str]) -> tuple[float | None, list[str]]:
    """Take the target, a number, out of the settings. Raises SettingError for another text."""
    found = [each for each in overrides if each.startswith("target=")]
    if not found:
        return None, list(overrides)
    text = found[-1].partition("=")[2]
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0 < value < 1 or -1 < value < 0):
        message = "the top-1 to reach is needed, as 0.75, or what may be lost against one worker, "
        raise SettingError("target", f"{message}as -0.01, not {text or 'nothing'}")
    return value, [each for each in overrides if each not in found]


def _plan_cluster(
    options: argparse.Namespace,
    configs: Sequence["PointConfig"],
    swept: set[str],
    target: float | None,
    root: Path,
) -> None:
    from paceline.command.cluster_plan_view import as_page, cluster_plan_view
    from paceline.command.terminal import show
    from paceline.prediction.cluster_plan import plan_cluster

    for name in ("memory", "study", "rounds", "seconds"):
        if getattr(options, name) is not None:
            raise SettingError(name, "it is of a plan for this machine; leave it out")
    if others := swept - {"workers", "batch_size", "scheme"}:
        raise SettingError(min(others), "a plan is of one cluster and network; give one value")
    question, said = _question(options, configs, target, root)
    plan = plan_cluster(question)
    show(cluster_plan_view(plan, said))
    if options.page:
        command = shlex.join(["paceline", "plan", *options.overrides])
        Path(options.page).write_text(as_page(plan, said, command))


def _question(
    options: argparse.Namespace,
    configs: Sequence["PointConfig"],
    target: float | None,
    root: Path,
) -> tuple["Question", str]:
    """Return what is asked, and what is to be said of a target that is a top-1."""
    from paceline.analysis.evidence_table import find_evidence
    from paceline.prediction import cluster_plan
    from paceline.prediction.evidence import evidence_for, read_evidence
    from paceline.prediction.network_by_size import with_network
    from paceline.prediction.predict import check_links
    from paceline.record.point import Point
    from paceline.timing.workload import OWN

    for config in configs:
        check_links(config)
    points = [Point.of(with_network(config)) for config in configs]
    point = max(points, key=lambda each: each.workers)
    config, most = point.config, point.workers
    is_set = {each.partition("=")[0].lstrip("+") for each in options.overrides}
    if "workers" not in is_set:
        raise SettingError("workers", "how many accelerators are there? For example, workers=32")
    if "global_batch_size" in is_set:
        raise SettingError("global_batch_size", "a plan needs batch_size, of each worker")
    counts = sorted({each.values["workers"] for each in configs})
    sizes = sorted({each.values["batch_size"] for each in configs})
    if "batch_size" not in is_set:
        sizes = cluster_plan.fitting(configs[0], cluster_plan.covered_batches(config))
    names, images = config.names, cluster_plan.images_of(point)
    network = names["model"] if point.workload.name == OWN else names["workload"]
    data = "ImageNet-1k" if images == cluster_plan.IMAGENET else names["data"]
    known = read_evidence()
    known += find_evidence(root / "reports", known, (network, data))
    evidence = evidence_for(known, network, data)
    allowed, said = _allowed(config, target, evidence, (network, data))
    own = {
        name.partition(".")[2]: config.values["scheme"].get(name.partition(".")[2])
        for name in is_set
        if name.startswith("scheme.")
    }
    studied = {cluster_plan.REFERENCE: [""], **(evidence.schemes if evidence else {})}
    asked = sorted({each.names["scheme"] for each in configs})
    chosen = asked if "scheme" in is_set else [*studied]
    return cluster_plan.Question(
        config=config,
        workers=counts if len(counts) > 1 else sorted({1, most // 4 or 1, most // 2 or 1, most}),
        batch_sizes=sizes,
        schemes={
            name: {
                text: cluster_plan.scheme_settings(name, text, own, root)
                for text in studied.get(name, [""])
            }
            for name in {cluster_plan.REFERENCE, *chosen}
        },
        compared=chosen,
        images=images,
        allowed=allowed,
        evidence=evidence,
        own_scheme=cluster_plan.changes_accuracy(own),
    ), said


def _allowed(
    config: "PointConfig",
    target: float | None,
    evidence: "Evidence | None",
    trained: tuple[str, str],
) -> tuple[float, str]:
    """Return the share of top-1 that may be lost, and what is to be said of a top-1 to reach."""
    from paceline.command.cluster_plan_view import points_lost

    margin = config.margin / 100
    if target is None or target < 0:
        return -target if target else margin, ""
    known = evidence.any if evidence else None
    if known is None or (known.model, known.data) != trained:
        network, data = trained
        return margin, (
            f"whether one worker reaches {100 * target:g} % is not known, since no study here "
            f"trained {network} on {data}; at most {points_lost(margin)} of it may be lost"
        )
    if known.one_worker < target:
        message = f"one worker reaches {100 * known.one_worker:.1f} % in {known.study}; a lower "
        raise SettingError("target", f"{message}top-1 is needed")
    return known.one_worker - target, ""


def _check(options: argparse.Namespace) -> None:
    from paceline.command.terminal import require_folder

    require_folder("page", options.page)
    if options.rounds is not None and options.rounds < 1:
        raise SettingError("rounds", f"1 or more are needed, not {options.rounds}")
    if options.seconds is not None and not 0 <= options.seconds < math.inf:
        raise SettingError("seconds", f"0 or more are needed, not {options.seconds}")


def _plan(options: argparse.Namespace, points: list[Any], root: Path) -> None:
    from paceline.analysis.configuration_table import updates_to_target
    from paceline.analysis.tables import read_tables
    from paceline.command.plan_view import plan_view
    from paceline.command.terminal import show
    from paceline.prediction.plan import bytes_of, plan_batches
    from paceline.prediction.race import compare

    names = points[0].config.names
    memory = bytes_of(options.memory, points[0].device)
    updates = {}
    if options.study:
        tables = read_tables(root / "reports" / options.study)
        updates = updates_to_target(tables, names["model"], names["data"])
        if not updates.keys() & {point.batch_size for point in points}:
            known = ", ".join(map(str, sorted(updates))) or "none"
            message = f"{options.study} tells updates to its target only for batch_size={known}"
            raise SettingError("study", message)
    rounds = options.rounds or _ROUNDS
    seconds = _SECONDS if options.seconds is None else options.seconds
    planned = plan_batches(points, memory, updates, rounds)
    show(plan_view(planned, compare(points, planned, memory, rounds, seconds), memory))


COMMAND = Command(
    help="""\
scheme, workers and batch size for a modelled cluster, by time and accuracy:
`paceline plan cluster=titan workload=googlenet workers=32 target=-0.01`. Without a
modelled cluster: batch size, and layout, recomputation and precision of each block
on this machine: `paceline plan model=resnet18 batch_size=32,64 --memory 200MB`""",
    run=_run,
    settings=True,
    add_arguments=_add_arguments,
)
