"""The plan of a modelled cluster: what to do in five lines, and on request why."""

import math
from collections.abc import Iterator

from rich.console import RenderableType

from paceline.command.terminal import plain_table
from paceline.grouped import grouped
from paceline.prediction.cluster_plan import (
    IMAGENET,
    KEPT,
    LOWER,
    NOT_STUDIED,
    RATIO,
    REFERENCE,
    UNCLEAR,
    Candidate,
    ClusterPlan,
    change_of,
    cluster_of,
    expected,
    link_of,
    verdict,
)
from paceline.prediction.evidence import COMPARABLE, FACTOR, RULES, STEP_FACTOR, Change
from paceline.prediction.predict import StepFrom
from paceline.report.number_format import bit_rate, count, plural, times
from paceline.report.words import scheme_name, value_words
from paceline.timing.workload import OWN

_MOST_ROWS = 8
_CHOSEN = ("backup_workers", "period", "graph")  # by the studies that plans rest on
_VERDICTS = {KEPT: "yes", UNCLEAR: "not shown", LOWER: "no", NOT_STUDIED: "not studied"}


def five_lines(plan: ClusterPlan) -> list[str]:
    """Return what is assumed and recommended, and on what it rests."""
    return [
        assumed(plan),
        recommendation(plan),
        learning_rate(plan),
        accuracy(plan),
        next_best(plan),
    ]


def why(plan: ClusterPlan) -> Iterator[RenderableType]:
    """Yield a table of candidates, and notes."""
    headings = ["scheme", ">workers", ">images per worker", ">images/s", ">time [h]"]
    headings += [">accelerator hours", ">change of top-1 [points]"]
    lost = f"loses at most {points_lost(plan.question.allowed)}?"
    yield plain_table([*headings, lost], (_row(plan, each) for each in shown(plan)))
    yield "\n".join(f"- {each}" for each in notes(plan))


def assumed(plan: ClusterPlan) -> str:
    """Return the nodes and the links for the most workers, and on what the time of the choice rests
    besides.
    """
    point, most = plan.chosen.prediction.point, max(plan.question.workers)
    profile, processes = cluster_of(point).profile, most * point.sharding.shards
    nodes, of_node = profile.num_nodes(processes), profile.largest_node(processes)
    inside = f" ({profile.topology})" if profile.topology not in (None, "unshared") else ""
    name, link = link_of(plan.question)
    rate = "infinitely fast network"
    if math.isfinite(link.bandwidth):
        per = "per node between them" if name == "link" else "per worker"
        rate = f"{bit_rate(link.bandwidth)} {per}"
    used = profile.num_nodes(plan.chosen.workers * point.sharding.shards)
    reads = count(plan.chosen.prediction.run.images_per_second / used)
    return (
        f"Assumed: {point.config.names['cluster']}, {plural(nodes, 'node')} of {of_node}{inside}, "
        f"{rate}; a node has to read and decode {reads} images/s."
    )


def recommendation(plan: ClusterPlan) -> str:
    """Return what to do, for how long."""
    chosen, training = plan.chosen, plan.chosen.prediction.point.training
    who = _named(chosen).replace(scheme_name(REFERENCE), f"{scheme_name(REFERENCE)} (DDP)")
    parts = [f"Use {who}", f"{count(chosen.prediction.point.batch_size)} images per worker"]
    if servers := chosen.prediction.point.scheme.servers:
        parts.append(plural(servers, "server"))
    imagenet = " (ImageNet-1k is assumed)" if plan.question.images == IMAGENET else ""
    budget = f"{training.epochs:g} epochs of {count(plan.question.images)} images{imagenet}"
    budget = f"{count(training.samples)} images" if training.samples else budget
    return f"{', '.join(parts)}, for {budget}: {_hours(chosen)} h."


def learning_rate(plan: ClusterPlan) -> str:
    """Return what to do about the learning rate, by what studies found with a rate by rule."""
    if plan.chosen.workers == 1:
        if any(each.proven and each.workers > 1 for each in plan.candidates):
            return "More workers are not predicted to be faster."
        return "More workers are not shown to keep the accuracy."
    asked, prediction = plan.question, plan.chosen.prediction
    found = {verdict(change_of(asked, prediction, rule), asked.allowed): rule for rule in RULES}
    scale = "Scale the learning rate of one worker by training.lr_rule="
    if KEPT in found:
        return f"{scale}{found[KEPT]}."
    if UNCLEAR in found:
        return f"{scale}{found[UNCLEAR]}, and search near the result (training.rate=tuned)."
    return "Search the learning rate (training.rate=tuned): no rule is shown to keep the accuracy."


def accuracy(plan: ClusterPlan) -> str:
    """Return from what the accuracies are carried over."""
    evidence, point = plan.question.evidence, plan.chosen.prediction.point
    if evidence is None:
        return (
            "No study supports any accuracy; one of this project does, after paceline report STUDY."
        )
    network, known = point.workload.name, evidence.any
    network = point.config.names["model"] if network == OWN else network
    return (
        f"Accuracy: that {network} behaves like {known.model} ({count(known.num_weights)} weights, "
        f"{known.epochs:g} epochs of {known.data}) is assumed: first train some epochs both ways."
    )


def next_best(plan: ClusterPlan) -> str:
    """Return what else is nearly as fast, or faster without proof."""
    chosen, found = plan.chosen, "No other scheme is predicted to be clearly faster"
    others = [each for each in plan.candidates if each.verdict == KEPT and not each.comparable]
    fastest = min(others, key=lambda each: each.seconds, default=None)
    if fastest and fastest.seconds * RATIO < chosen.seconds:
        found = f"Faster, if its accuracy holds: {_named(fastest)}, {_hours(fastest)} h; no study "
        found += "of a comparable network and as many workers shows it"
    elif plan.runner_up:
        found = f"Next best: {_named(plan.runner_up)}, {_hours(plan.runner_up)} h"
    return f"{found}; --why shows all."


def _named(candidate: Candidate) -> str:
    if candidate.workers == 1:
        return "one worker"
    return f"{_scheme(candidate)} with {plural(candidate.workers, 'worker')}"


def _scheme(candidate: Candidate) -> str:
    """Name the scheme of a candidate, with those of its settings that studies chose."""
    settings = candidate.prediction.point.config.values["scheme"]
    own = [value_words(f"scheme.{name}", settings[name]) for name in _CHOSEN if name in settings]
    chosen = ", ".join(filter(None, own))
    return scheme_name(candidate.scheme) + (f" ({chosen})" if chosen else "")


def _hours(each: Candidate) -> str:
    ends = [times(end / 3600) for end in each.interval or ()]
    return times(each.seconds / 3600) + (f" ({' to '.join(ends)})" if ends else ", no interval")


def shown(plan: ClusterPlan) -> list[Candidate]:
    """Return the candidates of the table: the choice, the runner-up, the choice with fewer
    workers, and of each other scheme the fastest that keeps the accuracy, or else the fastest.
    """
    first = [each for each in (plan.chosen, plan.runner_up) if each]
    own = [each for each in plan.candidates if each.scheme == plan.chosen.scheme]
    best_last = sorted(plan.candidates, key=lambda each: (each.verdict == KEPT, -each.seconds))
    best = {each.scheme: each for each in best_last if each.workers > 1}.values()
    others = sorted(best, key=lambda each: (each.verdict != KEPT, each.seconds))
    return list(dict.fromkeys([*first, *own, *others]))[:_MOST_ROWS]


def _row(plan: ClusterPlan, each: Candidate) -> list[str]:
    ratio = plan.runner_up.seconds / plan.chosen.seconds if plan.runner_up else math.inf
    marks = {plan.runner_up: f" (runner-up{', tied' * (1 / RATIO <= ratio <= RATIO)})"}
    several, point = each.workers > 1, each.prediction.point
    kept = _VERDICTS[each.verdict] + ("" if each.comparable else ", not comparable")
    return [
        (_scheme(each) if several else "one worker")
        + ({plan.chosen: " (choice)"} | marks).get(each, ""),
        count(each.workers),
        f"{count(point.batch_size)}{'*' if each.prediction.extrapolated else ''}",
        times(each.prediction.run.images_per_second),
        _hours(each),
        times(each.seconds * each.workers * point.sharding.shards / 3600),
        points(each.change, plan.question.allowed) if several else "-",
        kept if several else "-",
    ]


def points_lost(share: float) -> str:
    """Say what may be lost of top-1, as in "1 point"."""
    number = f"{100 * share:.3g}"
    return f"{number} point{'' if number == '1' else 's'}"


def points(change: Change | None, allowed: float) -> str:
    """Say a change of top-1 in percentage points, with its interval, and with so many decimals that
    an end is below the limit if it is so as printed.
    """
    if change is None:
        return "-"
    ends = [(100 * end, end < -allowed) for end in (change.low, change.high)]
    for digits in range(1, 5):
        if all((round(end, digits) < -100 * allowed) == below for end, below in ends):
            break
    mean, low, high = (f"{100 * each:+.{digits}f}" for each in change[:3])
    return f"{mean} ({low} to {high})"


def notes(plan: ClusterPlan) -> Iterator[str]:
    """Yield how times and accuracies are known, and how far the question is from the studies."""
    question, chosen, evidence = plan.question, plan.chosen, plan.question.evidence
    lost, point, run = points_lost(question.allowed), chosen.prediction.point, chosen.prediction.run
    if evidence:
        rounds = [row.rounds for row in evidence.observed]
        here = question.images / (chosen.workers * point.batch_size)
        stale = run.mean_staleness if run.staleness else 0.0
        yield (
            f"studies: {', '.join(dict.fromkeys(row.study for row in evidence.observed))}; a "
            f"worker's steps in an epoch: {count(min(rounds))} to {count(max(rounds))} there, "
            f"{count(here)} here; mean staleness: up to "
            f"{max(row.staleness for row in evidence.observed):.0f} there, {stale:.0f} here"
        )
        alone = [each.prediction.point for each in shown(plan) if each.workers == 1]
        most = max((each.batch_size for each in alone), default=1)
        few = question.images / most < max(rounds)  # else one worker is what was studied
        change = evidence.change(REFERENCE, question.images / most)
        if few and verdict(change, question.allowed) != KEPT:
            yield (
                f"one worker is what others are compared with, but updates of {count(most)} images "
                "are not shown to keep the accuracy, also if one worker computes them"
            )
    reasons = {
        LOWER: f"loses more than {lost}",
        UNCLEAR: f"not shown to lose at most {lost}",
        KEPT: "takes long to model",
    }
    left_out = not_timed(plan)
    for reason, schemes in grouped(left_out, left_out.__getitem__).items():
        yield f"not timed: {', '.join(map(scheme_name, schemes))} ({reasons.get(reason, reason)})"
    yield (
        f"loses at most {lost}: yes or no with 95 % confidence; not shown: the interval allows "
        f"both; {NOT_STUDIED}: beyond the studies"
    )
    yield (
        f"not comparable: studied with fewer workers, or with {COMPARABLE} times fewer or more "
        "weights; all-reduce (DDP) then comes first"
    )
    yield (
        f"tied: within a factor of {RATIO:g}, as are 90 % of predicted ratios; of tied ones "
        "all-reduce comes first, since PyTorch's DDP has it"
    )
    chip = chosen.prediction.cluster.chip
    precision = chip.run_precision if chip else point.training.precision
    yield (
        f"times are predicted ({precision}), 90 % of them within a factor of {FACTOR:g}; the "
        "slower end has what the profile assumes at its slowest, and one server of asynchronous "
        "pushes (checked with 1 to 8 workers)"
    )
    yield (
        f"exchanges and waiting take {100 * (run.exchanging + run.waiting):.0f} % of the time of "
        "the choice; reading data is not modelled"
    )
    if any(each.prediction.step_from is StepFrom.FLOPS for each in shown(plan)):
        yield f"a step {StepFrom.FLOPS}: off by a factor of at most {STEP_FACTOR:g} as well"
    if lacking := [each for each in shown(plan) if each.prediction.lacks]:
        yield f"no interval for {_scheme(lacking[0])}: {lacking[0].prediction.lacks}"
    if any(each.prediction.extrapolated for each in shown(plan)):
        yield "*: outside of the batch sizes that were measured; small batches may be slower"


def not_timed(plan: ClusterPlan) -> dict[str, str]:
    """Return the schemes that were asked for, or studied, and that no candidate has, each with the
    reason for which it was refused, or the verdict on its accuracy with the most workers.
    """
    question, most = plan.question, max(plan.question.workers)
    timed = {each.scheme for each in plan.candidates}
    with_most = (each for each in plan.candidates if each.workers == most)
    size = next(with_most, plan.chosen).prediction.point.batch_size
    return {
        scheme: plan.refused.get(scheme) or expected(question, scheme, most, size)
        for scheme in question.compared
        if scheme not in timed
    }
