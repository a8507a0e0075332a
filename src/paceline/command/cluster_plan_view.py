"""The plan of a modelled cluster as one screen: what to do, the candidates, what it rests on."""

import math
from collections.abc import Iterator

from rich.console import RenderableType

from paceline.command.terminal import plain_table
from paceline.grouped import grouped
from paceline.prediction.cluster_plan import (
    IMAGENET,
    JITTER,
    KEPT,
    LOWER,
    NOT_STUDIED,
    RATIO,
    REFERENCE,
    SLOW,
    UNCLEAR,
    Candidate,
    ClusterPlan,
)
from paceline.prediction.evidence import Change, Evidence
from paceline.prediction.predict import StepFrom
from paceline.prediction.prediction_interval import FACTOR, STEP_FACTOR
from paceline.report.number_format import bit_rate, count, plural, times
from paceline.report.words import scheme_name, value_words
from paceline.timing.workload import OWN

_MOST_ROWS = 8
_CHOSEN = ("backup_workers", "period", "graph")  # by the studies that plans rest on
_VERDICTS = {KEPT: "yes", UNCLEAR: "not shown", LOWER: "no", NOT_STUDIED: "not studied"}


def cluster_plan_view(plan: ClusterPlan) -> Iterator[RenderableType]:
    """Yield the recommendation, a table of candidates, what would change the answer, and notes."""
    yield "\n".join([assumed(plan), recommendation(plan), learning_rate(plan)])
    headings = ["scheme", ">workers", ">images per worker", ">images/s", ">time [h]"]
    headings += [">accelerator hours", ">change of top-1 [points]"]
    lost = f"loses at most {points_lost(plan.question.allowed)}?"
    yield plain_table([*headings, lost], (_row(plan, each) for each in shown(plan)))
    if changes := list(_changes(plan)):
        headings = ["if", "best then", ">times as fast as the choice", ">time of the choice"]
        yield plain_table(headings, changes)
    yield "\n".join(f"- {each}" for each in notes(plan))


def assumed(plan: ClusterPlan) -> str:
    """Return the nodes and the links for the most workers, and on what the time of the choice rests
    besides.
    """
    question, profile = plan.question, plan.question.cluster.profile
    processes = max(question.workers) * question.point.sharding.shards
    nodes, of_node = profile.num_nodes(processes), profile.largest_node(processes)
    inside = f" ({profile.topology})" if profile.topology not in (None, "unshared") else ""
    name, link = question.link
    rate = "infinitely fast network"
    if math.isfinite(link.bandwidth):
        per = "per node between them" if name == "link" else "per worker"
        rate = f"{bit_rate(link.bandwidth)} {per}"
    of = f"{plural(nodes, 'node')} of {of_node}{inside}"
    used = profile.num_nodes(plan.chosen.workers)
    reads = count(plan.chosen.prediction.run.images_per_second / used)
    reading = f"a node reads and decodes {reads} images/s"
    return f"Assumed: {question.config.names['cluster']}, {of}, {rate}; {reading}."


def recommendation(plan: ClusterPlan) -> str:
    """Return what to do."""
    chosen = plan.chosen
    who = _named(chosen).replace(scheme_name(REFERENCE), f"{scheme_name(REFERENCE)} (DDP)")
    parts = [f"Use {who}", f"{count(chosen.batch_size)} images per worker"]
    if servers := chosen.prediction.point.scheme.servers:
        parts.append(plural(servers, "server"))
    return f"{', '.join(parts)}, for {_budget(plan)}."


def learning_rate(plan: ClusterPlan) -> str:
    """Return what to do about the learning rate, by what studies found with a rate by rule."""
    if plan.chosen.workers == 1:
        if any(each.kept and each.workers > 1 for each in plan.candidates):
            return "More workers are not predicted to be faster."
        return "More workers are not shown to keep the accuracy."
    linear = "Scale the learning rate of one worker by training.lr_rule=linear"
    if plan.by_rule == KEPT:
        return f"{linear}."
    if plan.by_rule == UNCLEAR:
        return f"{linear}, and search near the result (training.rate=tuned)."
    return "Search the learning rate (training.rate=tuned): no rule is shown to keep the accuracy."


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


def _budget(plan: ClusterPlan) -> str:
    """Name the budget: epochs of so many images."""
    question, training = plan.question, plan.question.point.training
    if training.samples:
        return f"{count(training.samples)} images"
    assumed = " (ImageNet-1k is assumed)" if question.images == IMAGENET else ""
    return f"{training.epochs:g} epochs of {count(question.images)} images{assumed}"


def shown(plan: ClusterPlan) -> list[Candidate]:
    """Return the candidates of the table: the choice, the runner-up, the choice with fewer
    workers, and of each other scheme the fastest that keeps the accuracy, or else the fastest.
    """
    first = [each for each in (plan.chosen, plan.runner_up) if each]
    own = [each for each in plan.candidates if each.scheme == plan.chosen.scheme]
    best_last = sorted(plan.candidates, key=lambda each: (each.kept, -each.seconds))
    best = {each.scheme: each for each in best_last if each.workers > 1}.values()
    others = sorted(best, key=lambda each: (not each.kept, each.seconds))
    return list(dict.fromkeys([*first, *own, *others]))[:_MOST_ROWS]


def _row(plan: ClusterPlan, each: Candidate) -> list[str]:
    marks = {plan.runner_up: f" (runner-up{', tied' * plan.tied})"} if plan.runner_up else {}
    mark = ({plan.chosen: " (choice)"} | marks).get(each, "")
    several, hours = each.workers > 1, [each.seconds / 3600]
    hours += [end / 3600 for end in each.interval or ()]
    ends = f" ({' to '.join(map(times, hours[1:]))})" if hours[1:] else ", no interval"
    return [
        (_scheme(each) if several else "one worker") + mark,
        count(each.workers),
        f"{count(each.batch_size)}{'*' if each.prediction.extrapolated else ''}",
        times(each.prediction.run.images_per_second),
        f"{times(hours[0])}{ends}",
        times(each.accelerator_hours),
        points(each.change, plan.question.allowed) if several else "-",
        _VERDICTS[each.verdict] if several else "-",
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


def _changes(plan: ClusterPlan) -> Iterator[list[str]]:
    """Yield a row for each change of the cluster that was tried."""
    slower = bit_rate(plan.slower.bandwidth) if plan.slower else ""
    for flip, what in (
        (plan.slower, f"links have at most {slower}"),
        (plan.slow_worker, f"one worker takes {SLOW:g} times as long as the others"),
        (plan.jitter, f"times of steps have a standard deviation of {100 * JITTER:.0f} %"),
    ):
        if flip:
            gain = times(flip.own.seconds / flip.best.seconds)
            yield [
                what,
                "the choice" if flip.best.kind == plan.chosen.kind else _named(flip.best),
                gain if flip.own.kept else "(the accuracy of the choice is not studied there)",
                f"{times(flip.own.seconds / 3600)} h",
            ]


def notes(plan: ClusterPlan) -> Iterator[str]:
    """Yield how times and accuracies are known, and how far the question is from the studies."""
    question, chosen = plan.question, plan.chosen
    lost = points_lost(question.allowed)
    if question.evidence:
        yield from _distance(plan, question.evidence)
    else:
        yield "no study supports any accuracy; studies of a project do, after paceline report STUDY"
    most = max((each.batch_size for each in shown(plan) if each.workers == 1), default=1)
    if question.of_one_worker(most) != KEPT:
        yield (
            f"one worker is what others are compared with, but updates of {count(most)} images are "
            "not shown to keep the accuracy, also if one worker computes them"
        )
    reasons = {
        LOWER: f"loses more than {lost}",
        UNCLEAR: f"not shown to lose at most {lost}",
        KEPT: "takes long to model",
    }
    for why, schemes in grouped(plan.not_timed, plan.not_timed.__getitem__).items():
        yield f"not timed: {', '.join(map(scheme_name, schemes))} ({reasons.get(why, why)})"
    yield (
        f"loses at most {lost}: yes or no with 95 % confidence; not shown: the interval allows "
        f"both; {NOT_STUDIED}: beyond the studies"
    )
    yield (
        f"tied: within a factor of {RATIO:g}, as are 90 % of predicted ratios; of tied ones "
        "all-reduce comes first, since PyTorch's DDP has it"
    )
    chip, training = chosen.prediction.cluster.chip, chosen.prediction.point.training
    precision, run = chip.run_precision if chip else training.precision, chosen.prediction.run
    yield (
        f"times are predicted ({precision}), 90 % of them within a factor of {FACTOR:g}; exchanges "
        f"and waiting take {100 * (run.exchanging + run.waiting):.0f} % of that of the choice; "
        "reading data is not modelled"
    )
    if any(each.prediction.step_from is StepFrom.FLOPS for each in shown(plan)):
        yield f"a step {StepFrom.FLOPS}: off by a factor of at most {STEP_FACTOR:g} as well"
    if lacking := [each for each in shown(plan) if each.prediction.lacks]:
        yield f"no interval for {_scheme(lacking[0])}: {lacking[0].prediction.lacks}"
    if any(each.prediction.extrapolated for each in shown(plan)):
        yield "*: outside of the batch sizes that were measured; small batches may be slower"


def _distance(plan: ClusterPlan, evidence: Evidence) -> Iterator[str]:
    """Yield from what the accuracies are carried over, and how far that is."""
    question, chosen, known = plan.question, plan.chosen, evidence.any
    network = question.workload.name
    network = question.config.names["model"] if network == OWN else network
    studies = ", ".join(dict.fromkeys(row.study for row in evidence.observed))
    yield (
        f"accuracy: that {network} behaves like {known.model} ({count(known.num_weights)} weights, "
        f"{known.epochs:g} epochs of {known.data}; {studies}) is an assumption: "
        "first train some epochs both ways"
    )
    rounds = [row.rounds for row in evidence.observed]
    stale = chosen.prediction.run.mean_staleness if chosen.prediction.run.staleness else 0.0
    yield (
        f"a worker's steps in an epoch: {count(min(rounds))} to {count(max(rounds))} in the "
        f"studies, {count(question.rounds(chosen.workers, chosen.batch_size))} here; mean "
        f"staleness: up to {max(row.staleness for row in evidence.observed):.0f}, {stale:.0f} here"
    )
