"""Answers which scheme to use in each situation, from decision.csv only."""

from typing import NamedTuple

import pandas as pd

from paceline.analysis.frames import Frame
from paceline.report.choice import (
    NOT_JUDGED,
    ONE,
    UNKNOWN,
    Choice,
    choice,
    is_at_edge,
    tier_of,
)
from paceline.report.findings import StudyFindings
from paceline.report.number_format import count, interval, percent_points, times
from paceline.report.phrases import say
from paceline.report.situations import RATE, Situation, of_several_schemes
from paceline.report.target_origin import target_words
from paceline.report.words import scheme_words


class Answer(NamedTuple):
    """Answer for a situation.

    `use`: the scheme, ONE if none is shown to be faster than one worker, "" if that is unknown, or
    no run reached the target, or there is none. `text`: what it brings, in a sentence. `details`:
    what else is known of it and of the other schemes, a short sentence each.
    """

    situation: str
    use: str
    text: str
    details: list[str]


def answers(findings: StudyFindings) -> list[Answer]:
    """Return an answer for each situation with several schemes, at tuned rates if there are any."""
    decision = findings.concluded["decision"]
    return [_answer(findings, each, each.of(decision)) for each in answered(findings)]


def answered(findings: StudyFindings) -> list[Situation]:
    """Return the situations that answers are for, in their order."""
    several = of_several_schemes(findings)
    tuned = {_without_rate(each) for each in several if each.values.get(RATE) == "tuned"}
    return [
        each
        for each in several
        if each.values.get(RATE) != "by_rule" or _without_rate(each) not in tuned
    ]


def choices(findings: StudyFindings) -> list[tuple[Situation, Choice]]:
    """Return each situation that answers are for with what to use there."""
    decision = findings.concluded["decision"]
    return [(each, choice(each.of(decision))) for each in answered(findings)]


def _without_rate(situation: Situation) -> tuple[str, ...]:
    return tuple(str(value) for name, value in situation.values.items() if name != RATE)


def _answer(findings: StudyFindings, situation: Situation, rows: Frame) -> Answer:
    chosen, title = choice(rows), situation.title
    row = chosen.row
    if row is None:
        return _by_throughput(findings, rows, title)
    first, speed = scheme_words(row), interval(row, "speedup", times)
    runs = row["n"] - row["n_failed"]
    reached = say("reached", row, runs=runs, target=target_words(findings, row["target"]))
    numbers = {"scheme": first, "speed": speed, "reached": reached}
    if chosen.use == ONE:
        name = "answer_slower" if row["speedup_high"] < 1 else "answer_one_worker"
    elif speed:
        name = "answer_scheme"
    else:
        name = "answer_without_speedup"
        ends = {name: row.get(name) for name in ("baseline_n", "baseline_reached")}
        ends = {name: None if pd.isna(number) else number for name, number in ends.items()}
        numbers |= ends | {"first": first if chosen.use == UNKNOWN else ""}
    use = "" if chosen.use == UNKNOWN else chosen.use
    return Answer(title, use, say(name, numbers), [*_compared(row), *_others(rows, chosen)])


def _by_throughput(findings: StudyFindings, rows: Frame, title: str) -> Answer:
    """Name the scheme with the most images/s, where none reaches the target or there is none.

    It is not one to use: nothing says whether it learns.
    """
    none = ""
    if (rows["tier"] == "never").any():
        target = target_words(findings, rows["target"].iloc[0])
        at_edge = any(tier_of(row) == NOT_JUDGED for _, row in rows.iterrows())
        none = say("none_reached", target=target, at_edge=at_edge)
    rates = rows["images_per_second_mean"].dropna()
    if rates.empty:
        return Answer(title, "", f"{none} {say('none_finished')}".strip(), [])
    first = rows.loc[rates.idxmax()]
    rate = interval(first, "images_per_second", count)
    most = say("answer_throughput", scheme=scheme_words(first), rate=rate)
    return Answer(title, "", none or most, [most[:1].upper() + most[1:]] if none else [])


def _compared(row: Frame) -> list[str]:
    """Compare the scheme with one worker, and with the reference scheme if that is another."""
    sides = [(ONE, "", _accuracy(row, "one_worker_"))]
    if row["scheme"] != row["reference"]:
        speed = interval(row, "reference_speedup", times)
        words = say("compared_speed", speed=speed) if speed else ""
        sides.append((scheme_words({"scheme": row["reference"]}), words, _accuracy(row, "")))
    return [
        say("compared", other=other, speed=speed, accuracy=accuracy)
        for other, speed, accuracy in sides
        if speed or accuracy
    ]


def _accuracy(row: Frame, side: str) -> str:
    points = interval(row, f"{side}top1_difference", percent_points)
    if not points:
        return ""
    return say(
        "compared_accuracy",
        points=points,
        accuracy=row[f"{side}accuracy"],
        within_margin=row[f"{side}within_margin"],
        at_edge=is_at_edge(row),
    )


def _others(rows: Frame, chosen: Choice) -> list[str]:
    """Name the other schemes by tier; nothing is said against one at the edge of its search."""
    tiers = pd.Series([tier_of(row) for _, row in rows.iterrows()], rows.index)
    named = {
        "schemes_tied": chosen.tied,
        "schemes_behind": rows[tiers == "behind"],
        "schemes_never": rows[tiers == "never"],
        "schemes_not_judged": rows[tiers == NOT_JUDGED],
    }
    with_speeds = ("schemes_tied", "schemes_behind")
    return [
        say(
            name,
            speeds=own["speedup_mean"].notna().any(),
            names="; ".join(
                _with_speed(row) if name in with_speeds else scheme_words(row)
                for _, row in own.iterrows()
            ),
        )
        for name, own in named.items()
        if len(own)
    ]


def _with_speed(row: Frame) -> str:
    """Name a scheme with its speed-up; of one that missed the target, how many runs reached it."""
    speed = None if pd.isna(row["speedup_mean"]) else row["speedup_mean"]
    numbers = {"n_reached": row["n_reached"], "runs": row["n"] - row["n_failed"]}
    return say("scheme_speed", numbers, scheme=scheme_words(row), speed=speed)
