"""The plan of a modelled cluster as one screen, and as a page."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from paceline.command.terminal import plain_table
from paceline.grouped import grouped
from paceline.prediction.cluster_plan import (
    IMAGENET,
    JITTER,
    KEPT,
    LOWER,
    MOST_TIMES,
    NOT_STUDIED,
    RATIO,
    REFERENCE,
    SLOW,
    UNCLEAR,
    Candidate,
    ClusterPlan,
    Flip,
)
from paceline.prediction.evidence import LONGEST_EXCHANGE, Change, Evidence
from paceline.prediction.predict import StepFrom
from paceline.prediction.prediction_interval import FACTOR, STEP_FACTOR
from paceline.report.number_format import bit_rate, count, listed, plural, times
from paceline.report.words import scheme_name, value_words
from paceline.timing.workload import OWN

if TYPE_CHECKING:
    from paceline.report.chart.chart_style import Chart

_MOST_ROWS = 8
_CHOSEN = ("backup_workers", "period", "graph")  # by the studies that plans rest on
_MOST_QUICKER = 2
_SHOWN = 0.05  # share below which a difference in cost is not worth a word
_COLUMNS = ("scheme", ">workers", ">images per worker", ">images/s", ">time", ">accelerator hours")
_COLUMNS += (">change of top-1 [points]",)
_VERDICTS = {KEPT: "yes", UNCLEAR: "not shown", LOWER: "no", NOT_STUDIED: "not studied"}
_UNITS = (("days", 86400.0, 5.0), ("h", 3600.0, 2.0), ("min", 60.0, 2.0), ("s", 1.0, 0.0))


def cluster_plan_view(plan: ClusterPlan, target: str) -> Iterator[RenderableType]:
    """Yield the recommendation, a table of candidates, and what is said about them.

    `target`: what is said of a target that was given as a top-1; "" if none was.
    """
    yield "\n".join(answer(plan))
    yield plain_table(columns(plan), _rows(plan))
    for title, sentences in sections(plan, target):
        yield "\n".join([f"{title}:", *(f"- {each}" for each in sentences)])


def answer(plan: ClusterPlan) -> list[str]:
    """Return what is assumed, what to do, and why."""
    return [assumed(plan), recommendation(plan), *advice(plan)]


def assumed(plan: ClusterPlan) -> str:
    """Return the nodes and the links for the most workers, and on what the time of the choice rests
    besides.
    """
    question, profile = plan.question, plan.question.cluster.profile
    processes = max(question.workers) * question.point.sharding.shards
    nodes, of_node = profile.num_nodes(processes), profile.largest_node(processes)
    inside = f" ({profile.topology})" if profile.topology not in (None, "unshared") else ""
    name, link = question.link
    rate = "links without a limit"
    if math.isfinite(link.bandwidth):
        per = "per node between them" if name == "link" else "per worker"
        rate = f"{bit_rate(link.bandwidth)} {per}"
    of = f"{plural(nodes, 'node')} of {of_node}{inside}"
    chosen, used = plan.chosen.prediction, profile.num_nodes(plan.chosen.workers)
    reads = f"{'each node' if used > 1 else 'a node'} reads and decodes "
    reads += f"{count(chosen.run.images_per_second / used)} images/s"
    step = f"; a step is {StepFrom.FLOPS}" if chosen.step_from is StepFrom.FLOPS else ""
    return f"Assumed: {question.config.names['cluster']}, {of}, {rate}; {reads}{step}."


def columns(plan: ClusterPlan) -> tuple[str, ...]:
    """Return the names of the table's columns; ">" marks those that are aligned to the right."""
    return (*_COLUMNS, f"loses at most {points_lost(plan.question.allowed)}?")


def recommendation(plan: ClusterPlan) -> str:
    """Return what to do, and what it takes."""
    chosen = plan.chosen
    who = named(chosen).replace(scheme_name(REFERENCE), f"{scheme_name(REFERENCE)} (DDP)")
    parts = [f"Use {who}", f"{count(chosen.batch_size)} images per worker"]
    if chosen.workers > 1:
        parts[-1] += f" ({count(chosen.workers * chosen.batch_size)} together)"
    if servers := chosen.prediction.point.scheme.servers:
        parts.append(plural(servers, "server"))
    time = _time(plan, chosen).replace("(", "(90 %: ")
    took = f"{budget(plan)} take {time} and cost {_hours(chosen)} accelerator hours"
    return f"{', '.join(parts)}: {took}."


def advice(plan: ClusterPlan) -> list[str]:
    """Return what the choice changes of top-1, if known, why it is the choice, and what to do about
    the learning rate.
    """
    rate, change = learning_rate(plan), plan.chosen.change
    if plan.chosen.workers == 1 or change is None:
        return [rate]
    allowed, known = plan.question.allowed, plan.question.evidence
    top1 = points(change, allowed).replace("(", "(95 %: ")
    text = f"Expected change of top-1 against one worker: {top1} points"
    names, network = plan.question.config.names, plan.question.workload.name
    network = names["model"] if network == OWN else network
    if known and known.any.model != network:
        text += f", if {network} behaves like the {known.any.model} of the studies"
    return [f"{text}.", _quicker(plan), rate]


def _quicker(plan: ClusterPlan) -> str:
    """Say which candidates that keep the accuracy may be faster than the choice."""
    faster = [each for each in plan.candidates if each.kept and each.seconds < plan.chosen.seconds]
    faster = sorted(faster, key=lambda each: each.seconds)[:_MOST_QUICKER]
    if not faster:
        lost = points_lost(plan.question.allowed)
        return f"Nothing else that is shown to lose at most {lost} is predicted to be faster."
    gains = [
        f"{named(each, scheme_name(each.scheme))} "
        f"({plan.chosen.seconds / each.seconds:.2f} times as fast)"
        for each in faster
    ]
    within = f"within the error of the comparison (a factor of {RATIO:g})"
    return f"{listed(gains)} may be faster, {within}."


def learning_rate(plan: ClusterPlan) -> str:
    """Return what to do about the learning rate, by what studies found with a rate by rule."""
    if plan.chosen.workers == 1:
        if any(each.kept and each.workers > 1 for each in plan.candidates):
            return "More workers are not predicted to be faster."
        return "More workers are not shown to keep the accuracy."
    linear = (
        "Take a learning rate that suits one worker, scale it in proportion to the images of an "
        "update (training.lr_rule=linear)"
    )
    if plan.by_rule == KEPT:
        return f"{linear}."
    if plan.by_rule == UNCLEAR:
        return f"{linear}, and search near the result (training.rate=tuned)."
    return "Search the learning rate (training.rate=tuned): no rule is shown to keep the accuracy."


def named(candidate: Candidate, scheme: str = "") -> str:
    """Name a candidate by its scheme, or the words `scheme` for it, and its number of workers."""
    if candidate.workers == 1:
        return "one worker"
    return f"{scheme or words(candidate)} with {plural(candidate.workers, 'worker')}"


def words(candidate: Candidate) -> str:
    """Name the scheme of a candidate, with those of its settings that studies chose."""
    settings = candidate.prediction.point.config.values["scheme"]
    own = [value_words(f"scheme.{name}", settings[name]) for name in _CHOSEN if name in settings]
    chosen = ", ".join(filter(None, own))
    return scheme_name(candidate.scheme) + (f" ({chosen})" if chosen else "")


def budget(plan: ClusterPlan) -> str:
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
    others = {each.scheme: each for each in best_last if each.scheme != plan.chosen.scheme}.values()
    others = sorted(others, key=lambda each: each.seconds)
    kept = [each for each in others if each.kept]
    not_kept = [each for each in others if not each.kept]
    ordered = [*first, *own, *kept[:2], *not_kept[:2], *kept, *not_kept]
    return list(dict.fromkeys(ordered))[:_MOST_ROWS]


def _rows(plan: ClusterPlan) -> Iterator[list[str]]:
    marks = {plan.chosen: " (choice)", plan.runner_up: " (runner-up)"}
    first = [*marks]
    for each in sorted(
        shown(plan), key=lambda each: (first.index(each) if each in marks else 2, each.seconds)
    ):
        several = each.workers > 1
        yield [
            (words(each) if several else "one worker") + marks.get(each, ""),
            count(each.workers),
            f"{count(each.batch_size)}{'*' if each.prediction.extrapolated else ''}",
            times(each.prediction.run.images_per_second),
            _time(plan, each),
            _hours(each),
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


def _hours(candidate: Candidate) -> str:
    hours = candidate.accelerator_hours
    return f"{hours:,.{0 if hours >= 10 else 1 if hours >= 1 else 2}f}"


def _unit(plan: ClusterPlan) -> tuple[str, float]:
    seconds = plan.chosen.seconds
    return next((name, unit) for name, unit, least in _UNITS if seconds >= least * unit)


def _time(plan: ClusterPlan, candidate: Candidate) -> str:
    name, unit = _unit(plan)
    if candidate.interval is None:
        return f"{times(candidate.seconds / unit)} {name}, no interval"
    low, high = (times(each / unit) for each in candidate.interval)
    return f"{times(candidate.seconds / unit)} {name} ({low} to {high})"


def sections(plan: ClusterPlan, target: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield titles with sentences: the runner-up, what would change the answer, the evidence."""
    if plan.runner_up:
        yield "Runner-up", [_runner_up(plan, plan.runner_up)]
    yield "What would change the answer", list(_changes(plan))
    yield "What it rests on", [*([target] if target else []), *_rests_on(plan)]


def _runner_up(plan: ClusterPlan, other: Candidate) -> str:
    ratio = f"{times(plan.ratio)} ({times(plan.ratio / RATIO)} to {times(plan.ratio * RATIO)})"
    text = f"{named(other)}: {ratio} times as long"
    if plan.tied:
        text += ", statistically tied"
        if plan.chosen.scheme == REFERENCE and other.scheme != REFERENCE:
            text += "; all-reduce comes first, since PyTorch's DDP has it"
    saved = 1 - other.accelerator_hours / plan.chosen.accelerator_hours
    if other.workers < plan.chosen.workers and abs(saved) >= _SHOWN:
        text += f"; it costs {100 * abs(saved):.0f} % {'less' if saved > 0 else 'more'}"
    return text


def _changes(plan: ClusterPlan) -> Iterator[str]:
    chosen = plan.chosen
    if chosen.workers == 1:
        slow = any(each.kept and each.workers > 1 for each in plan.candidates)
        yield "faster links" if slow else "a larger loss that is allowed, as target=-0.03"
        return
    name, link = plan.question.link
    if name == "link" and chosen.prediction.cluster.profile.num_nodes(chosen.workers) == 1:
        yield "slower links: the answer stays, since the choice uses none between nodes"
    elif plan.slower:
        yield _at_slower_links(plan, plan.slower, f"now {bit_rate(link.bandwidth)}")
    elif math.isfinite(link.bandwidth):
        yield f"slower links: the answer stays, down to {bit_rate(link.bandwidth / MOST_TIMES)}"
    jitter = f"{100 * JITTER:.0f} % (now {100 * plan.question.cluster.step_jitter:.3g} %)"
    for flip, what, stays in (
        (
            plan.slow_worker,
            f"if one worker took {SLOW:g} times as long as the others",
            f"train with {chosen.workers - 1} instead",
        ),
        (
            plan.jitter,
            f"steps whose times have a standard deviation of {jitter}",
            "the answer stays",
        ),
    ):
        if flip:
            slower = f"{times(flip.own.seconds / chosen.seconds)} times the time"
            best = _by(flip) if flip.best.kind != chosen.kind else stays
            yield f"{what}: {slower}; {best}"


def _at_slower_links(plan: ClusterPlan, flip: Flip, now: str) -> str:
    """Say what is best over slower links, and down to which its accuracy is known."""
    text = f"links of at most {bit_rate(flip.bandwidth)} ({now}): "
    if not flip.own.kept:
        return f"{text}the accuracy of the choice is not studied there; {named(flip.best)} is next"
    text += _by(flip)
    if exchange := plan.question.exchange(flip.best.prediction.point):
        least = bit_rate(flip.bandwidth * exchange / LONGEST_EXCHANGE)
        text += f", down to {least}, below which its accuracy is not studied"
    return text


def _by(flip: Flip) -> str:
    gain = times(flip.own.seconds / flip.best.seconds)
    return f"{named(flip.best)} would be {gain} times as fast as the choice"


def _rests_on(plan: ClusterPlan) -> Iterator[str]:
    """Yield how times and accuracies are known, and how far the question is from the studies."""
    question, chosen = plan.question, plan.chosen
    if question.evidence:
        yield from _distance(plan, question.evidence)
    else:
        yield "no study supports any accuracy; studies of a project do, after paceline report STUDY"
    chip, training = chosen.prediction.cluster.chip, chosen.prediction.point.training
    precision = chip.run_precision if chip else training.precision
    yield (
        f"times: predicted ({precision}), within a factor of {FACTOR:g} of what was observed in "
        f"earlier predictions, and ratios of two within {RATIO:g}, in 90 % of cases each"
    )
    run = chosen.prediction.run
    yield (
        f"exchanges and waiting take {100 * (run.exchanging + run.waiting):.0f} % of the time; "
        "reading data is not modelled"
    )
    if any(each.prediction.step_from is StepFrom.FLOPS for each in shown(plan)):
        yield f"a step {StepFrom.FLOPS}: off by a factor of at most {STEP_FACTOR:g} as well"
    if lacking := [each for each in shown(plan) if each.prediction.lacks]:
        yield f"no interval for {words(lacking[0])}: {lacking[0].prediction.lacks}"
    if starred := [each.prediction for each in shown(plan) if each.prediction.extrapolated]:
        rate = starred[0].rate
        known = " to ".join(map(count, dict.fromkeys(rate.batch_sizes))) if rate else "other"
        yield (
            f"*: speed extrapolated from {known} images; small batches may be slower, since "
            "starting kernels takes time, and intervals were not checked for that"
        )


def _distance(plan: ClusterPlan, evidence: Evidence) -> Iterator[str]:
    question, chosen, known = plan.question, plan.chosen, evidence.any
    lost = points_lost(question.allowed)
    workers = [row.workers for row in evidence.observed]
    rounds = [row.rounds for row in evidence.observed]
    studies = ", ".join(dict.fromkeys(row.study for row in evidence.observed))
    weights, images = count(question.weight_bytes // 4), count(question.images)
    network = f"a network of {count(known.num_weights)} weights, {known.epochs:g} epochs on "
    yield (
        f"accuracy: from {network}{count(known.images)} images of {known.data}, {min(workers)} to "
        f"{max(workers)} workers ({studies})"
    )
    yield (
        f"that yours, of {weights} weights and {images} images, behaves alike is an assumption: "
        "train some epochs with one worker and with the choice before you rely on it"
    )
    here, most = question.rounds(chosen.workers, chosen.batch_size), max(rounds)
    above = ", which counts as the most there" if here > most else ""
    stale = chosen.prediction.run.mean_staleness if chosen.prediction.run.staleness else 0.0
    yield (
        f"a worker's steps in an epoch: {count(min(rounds))} to {count(most)} in the studies, "
        f"{count(here)} here{above}"
    )
    yield (
        "mean staleness (updates by others between a worker's reading of weights and its own): "
        "up to "
        f"{max(row.staleness for row in evidence.observed):.0f} there, {stale:.0f} here"
    )
    for each in sorted(plan.candidates, key=lambda each: -each.workers):
        if (exchange := question.exchange(each.prediction.point)) > LONGEST_EXCHANGE:
            yield (
                f"{named(each)}: its accuracy is not studied, since an exchange takes "
                f"{times(exchange)} steps of computing, for which no worker waits; studied were at "
                f"most {LONGEST_EXCHANGE:g}"
            )
            break
    most = max((each.batch_size for each in shown(plan) if each.workers == 1), default=1)
    if question.of_one_worker(most) != KEPT:
        yield (
            f"one worker is what others are compared with, but updates of {count(most)} images are "
            "not shown to keep the accuracy, also if one worker computes them"
        )
    if not_timed := plan.not_timed:
        reasons = {
            LOWER: f"loses more than {lost}",
            UNCLEAR: f"not shown to lose at most {lost}",
            NOT_STUDIED: NOT_STUDIED,
            KEPT: "takes long to model",
        }
        groups = grouped(not_timed, not_timed.__getitem__).items()
        told = (
            f"{', '.join(map(scheme_name, of))} ({reasons.get(why, why)})" for why, of in groups
        )
        yield f"not timed: {'; '.join(told)}"
    yield (
        f"loses at most {lost}: yes, with 95 % confidence; no: loses "
        f"more; not shown: the interval allows both; {NOT_STUDIED}: beyond the studies"
    )


def as_page(plan: ClusterPlan, target: str, command: str) -> str:
    """Return the plan as an HTML page that needs no other file. `command`: what was typed."""
    from paceline.report.chart.chart_style import static_svg  # takes a second
    from paceline.report.page import render

    drawn = _chart(plan)
    content: Mapping[str, Any] = {
        "title": f"Plan for {plan.question.config.names['cluster']}",
        "command": command,
        "recommendation": answer(plan),
        "columns": columns(plan),
        "rows": list(_rows(plan)),
        "sections": list(sections(plan, target)),
        "figure": static_svg(drawn) if drawn else "",
        "caption": drawn.caption if drawn else "",
    }
    return render("plan.html.j2", content)


def _chart(plan: ClusterPlan) -> "Chart | None":
    """Draw the expected change of top-1 over the time, for candidates of which both are known."""
    from paceline.report.chart.chart_style import chart, short

    known: Sequence[Candidate] = [each for each in shown(plan) if each.change]
    name, unit = _unit(plan)
    rows = [
        {
            "scheme": scheme_name(each.scheme),
            "workers": each.workers,
            "time": short(each.seconds / unit),
            "soonest": short((each.interval or (each.seconds,) * 2)[0] / unit),
            "latest": short((each.interval or (each.seconds,) * 2)[1] / unit),
            **{end: short(100 * getattr(each.change, end)) for end in ("mean", "low", "high")},
        }
        for each in known
    ]
    return chart("plan", rows, unit=name, allowed=-100 * plan.question.allowed)
