"""Scheme, workers and batch size for a modelled cluster, by time and accuracy.

`paceline plan cluster=titan workload=googlenet workers=32 margin=2`: two points of top-1 may be
lost.
"""

import argparse
import gc
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.errors import SettingError

if TYPE_CHECKING:  # torch takes seconds
    from paceline.prediction.cluster_plan import Question
    from paceline.record.point_config import PointConfig


def add_arguments(parser: argparse.ArgumentParser) -> None:
    told = "the candidates, how times and accuracies are known, and what was left out"
    parser.add_argument("--why", action="store_true", help=told)


def run(options: argparse.Namespace, root: Path) -> int:
    gc.collect()
    gc.freeze()  # before torch: a library of it complains at the end of what is frozen
    from paceline.command.cluster_plan_view import five_lines, why
    from paceline.command.terminal import show
    from paceline.prediction.cluster_plan import plan_cluster
    from paceline.prediction.network_by_size import in_precision, own_images
    from paceline.record.point_config import is_virtual
    from paceline.study.compose import composed_each

    each_composed = composed_each(options.overrides, root, [own_images, in_precision])
    configs = [each.config for each in each_composed]
    if not is_virtual(configs[0].values["cluster"]):
        raise SettingError("cluster", "a plan needs a modelled one, such as cluster=titan")
    swept = {name for each in each_composed for name in each.swept}
    if others := swept - {"workers", "batch_size", "scheme"}:
        raise SettingError(min(others), "a plan does not choose it; give one value")
    plan = plan_cluster(_question(options.overrides, configs, root))
    show(five_lines(plan))
    if options.why:
        show(why(plan))
    return 0


def _question(overrides: Sequence[str], configs: "Sequence[PointConfig]", root: Path) -> "Question":
    """Return what is asked: `configs` for each combination of the values that `overrides` list."""
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
    is_set = {each.partition("=")[0].lstrip("+") for each in overrides}
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
        allowed=config.margin / 100,
        evidence=evidence,
        own_scheme=cluster_plan.changes_accuracy(own),
    )
