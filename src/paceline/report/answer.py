"""Answers which scheme to use in each situation of a study, by the table decision.csv only."""

from contextlib import suppress
from typing import Any, NamedTuple

import pandas as pd

from paceline.analysis.comparison import METRICS, compared_by
from paceline.analysis.configuration import PROCESSES, SPLIT, is_of_scheme, with_processes
from paceline.analysis.decision import AT_BEST, is_faster
from paceline.analysis.frames import Entry, Frame, Row
from paceline.analysis.searches import searched_setting
from paceline.analysis.tables import CURVE_IMAGES
from paceline.report.findings import RATE, Situation, StudyFindings, of_several_schemes
from paceline.report.number_format import (
    Form,
    count,
    general,
    interval,
    percent,
    percent_points,
    seconds,
    times,
    with_interval,
)
from paceline.report.tiers import NOT_JUDGED, tier_of
from paceline.report.words import say, scheme_name, scheme_words, value_words, values_words

BUDGETS = ("training.samples", "training.epochs")
ONE = "one worker"  # what to use where no scheme is faster
NONE = "no run reaches the target"
UNKNOWN = "unknown, because runs missed the target"
FEW = "unknown, because seeds or trials are too few"
_NONE_FASTER = 1.1  # a speed-up below which by its whole interval one worker is recommended


class Choice(NamedTuple):
    """Choice of what to use in a situation.

    `use` is the scheme in words, or ONE, NONE, UNKNOWN or FEW. `row` is the row of decision.csv of
    the scheme to use, else of the one with the shortest time to the target; None if no run reached
    the target. `tied` has the rows of the schemes whose time does not differ significantly from the
    best one; of these, the ones that are significantly less accurate than another are not chosen.
    """

    use: str
    row: Frame | None
    tied: Frame

    @property
    def is_scheme(self) -> bool:
        """True if `use` is a scheme."""
        return self.use not in (ONE, NONE, UNKNOWN, FEW)


class Answer(NamedTuple):
    """Answer to the question which scheme to use in a situation.

    `use` is the scheme, ONE if no scheme is shown to be faster than one worker, or "" if nothing
    can be recommended. `text` is a sentence on what this choice brings. `details` are sentences
    that compare it with one worker and with other schemes.
    """

    situation: str
    use: str
    text: str
    details: list[str]


def choice(rows: Frame) -> Choice:
    """Choose the best scheme that is shown to be faster than one worker, from a situation's rows.

    Of the schemes that are tied in time, those are passed over than which another is significantly
    more accurate. If some runs of the best scheme missed the target, its speed-up is unknown, and a
    scheme that is tied with it may be chosen. If some runs of one worker missed the target, no
    speed-up is known. If a wide interval contains 1, seeds or trials are too few to tell.
    """
    best, tied = rows[rows["tier"] == "best"], rows[rows["tier"] == "tied"]
    ranked: Frame = pd.concat([best, tied.sort_values("target_seconds_mean")])
    if ranked.empty:
        return Choice(NONE, None, ranked)
    able = [row for _, row in ranked.iterrows() if not row["less_accurate_than"]]
    row = next(filter(is_faster, able), able[0])  # there is one: the most accurate
    others = ONE if row[f"{AT_BEST}speedup_high"] < _NONE_FASTER else FEW
    others = UNKNOWN if pd.isna(row["speedup_mean"]) else others
    return Choice(scheme_words(row) if is_faster(row) else others, row, ranked.drop(row.name))


def searched_words(findings: StudyFindings, row: Frame) -> str:
    """Say the setting of its scheme that a search chose for a row of decision.csv; "" without."""
    known = [name for name in row.index if name not in findings.of_size]
    name, _, text = searched_setting(findings.tables, row[known]).partition("=")
    value: Entry = text
    with suppress(ValueError):
        value = float(text)
    return value_words(name, value) if name else ""


def found_words(findings: StudyFindings, row: Frame) -> str:
    """Name the scheme of a row of decision.csv, with the setting of it that a search chose."""
    own = searched_words(findings, row)
    return f"{scheme_words(row)} ({own})" if own else scheme_words(row)


def answered(findings: StudyFindings) -> list[Situation]:
    """Return the situations with several schemes that the page answers.

    A situation whose learning rates follow from a rule is left out if there is one with tuned rates
    and otherwise the same settings.
    """
    several = of_several_schemes(findings)
    tuned = {_without_rate(each) for each in several if each.values.get(RATE) == "tuned"}
    return [
        each
        for each in several
        if each.values.get(RATE) != "by_rule" or _without_rate(each) not in tuned
    ]


def choices(findings: StudyFindings) -> list[tuple[Situation, Choice]]:
    """Return each situation of `answered` with the choice of what to use there."""
    decision = findings.concluded["decision"]
    return [(each, choice(each.of(decision))) for each in answered(findings)]


def answers(findings: StudyFindings) -> list[Answer]:
    """Return an answer for each situation of `answered`, or for each compared configuration."""
    if findings.compares_all:
        return [_of_configuration(findings, row) for row in compared_configurations(findings)]
    decision = findings.concluded["decision"]
    return [_answer(findings, each, each.of(decision)) for each in answered(findings)]


def compared_configurations(findings: StudyFindings) -> list[Row]:
    """Return the rows of configurations with a finished run, each with its name in `words`.

    `value_mean` and so on: what the study compares. Words are those of what varies; the budget is
    not named beside images/s, which do not depend on it.
    """
    by, table = compared_by(findings.tables), with_processes(findings.configurations)
    table = table[table["n_finished"] > 0]
    table = table.assign(scheme_words=[scheme_words(row) for _, row in table.iterrows()])
    left_out = (*SPLIT, *(BUDGETS if by == "images_per_second" else ()))
    names = [PROCESSES if PROCESSES in table else "workers", *findings.varying]
    names = [n for n in names if not is_of_scheme(n) and n not in left_out]
    names = [n for n in names if table[n].nunique(dropna=False) > 1]
    several = table["scheme_words"].nunique() > 1 or not names
    rows = list[Row]()
    for _, row in table.iterrows():
        words = [row["scheme_words"] if several else "", values_words(row, names)]
        text = ", ".join(filter(None, words))
        text += f" ({row['kind']})" if table["kind"].nunique() > 1 else ""
        value = {f"value_{end}": row.get(f"{by}_{end}") for end in ("mean", "low", "high", "n")}
        rows.append(dict(row) | value | {"words": text})
    return rows


def _of_configuration(findings: StudyFindings, row: Row) -> Answer:
    by = compared_by(findings.tables)
    form, sign = (percent, percent_points) if by in METRICS else (general, times)
    numbers = {"value": with_interval(row, "value", form), "first": interval(row, "first", sign)}
    runs = findings.tables.runs
    spreads = by in METRICS and (runs["scheme"].nunique() > 1 or runs["workers"].nunique() > 1)
    numbers |= {"seconds": interval(row, "seconds", seconds) if spreads else "", "by": by}
    numbers["target"] = _target(findings, row["target"]) if by == "target_seconds" else ""
    text = say("of_configuration", row, **numbers, images=validation_images(findings))
    return Answer(row["words"][:1].upper() + row["words"][1:], "", text, [])


def target_metric(findings: StudyFindings) -> str:
    """Return the metric of the target: top1, top5, or loss, of which smaller is better."""
    return (findings.tables.about["target"] or {"metric": "top1"})["metric"]


def validation_images(findings: StudyFindings) -> str:
    """Name the images on which targets are set and reached, as in "2,000 validation images"."""
    return say("validation_images", images=findings.tables.about["settings"].get(CURVE_IMAGES))


def _target(findings: StudyFindings, value: float) -> str:
    """Say a target, as in "87.7 % on validation images"."""
    metric, images = target_metric(findings), validation_images(findings)
    return say("target", metric=metric, value=value, images=images)


def _without_rate(situation: Situation) -> tuple[str, ...]:
    return tuple(str(value) for name, value in situation.values.items() if name != RATE)


def _answer(findings: StudyFindings, situation: Situation, rows: Frame) -> Answer:
    chosen = choice(rows)
    if chosen.row is None:
        return _by_throughput(findings, situation, rows)
    numbers = _known(chosen.row) | {"scheme": scheme_words(chosen.row)}
    numbers |= _both(chosen.row, "", "speedup", "speed", times)
    numbers["reached"] = say("reached", numbers, target=_target(findings, chosen.row["target"]))
    if chosen.use == ONE:
        use = ONE
        name = "answer_slower" if chosen.row["best_speedup_high"] < 1 else "answer_one_worker"
    else:
        use = found_words(findings, chosen.row) if chosen.is_scheme else ""
        name = "answer_scheme" if numbers["speed"] else "answer_without_speedup"
        name = "answer_few_seeds" if chosen.use == FEW else name
    details = [*_compared(chosen.row), *_others(rows, chosen)]
    return Answer(situation.title, use, say(name, numbers, use=use), details)


def _by_throughput(findings: StudyFindings, situation: Situation, rows: Frame) -> Answer:
    """Return an answer with the images/s of each scheme, without recommending one.

    Throughput alone does not show whether a scheme learns.
    """
    title = situation.title
    tiers = [tier_of(row) for _, row in rows.iterrows()]
    none = ""
    if (rows["tier"] == "never").any():
        target = _target(findings, rows["target"].iloc[0])
        none = say("none_reached", target=target, at_edge=NOT_JUDGED in tiers)
    if none and situation.values["kind"] == "virtual":  # time is an assumption of the study
        return Answer(title, "", none, [])
    fastest = situation.of(findings.known("images_per_second_mean")).sort_values(
        "images_per_second_mean", ascending=False
    )
    rates = [
        (
            scheme_words(row),
            with_interval(row, "images_per_second", count),
            interval(row, "speedup", times),
        )
        for _, row in fastest.iterrows()
    ]
    text = say("answer_throughput", rates=rates)
    return Answer(title, "", none or text, [text] if none else [])


def _compared(row: Frame) -> list[str]:
    """Compare the scheme with one worker, and with the reference scheme if that is another one."""
    sides = [(ONE, {"speed": "", "best_speed": ""}, "one_worker_")]
    if row["scheme"] != row["reference"]:
        speed = _both(row, "", "reference_speedup", "speed", times)
        sides.append((scheme_name(str(row["reference"])), speed, ""))
    texts = []
    for other, speed, side in sides:
        names = [f"{at}{name}" for at in ("", AT_BEST) for name in ("accuracy", "within_margin")]
        numbers = {name: row[f"{side}{name}"] for name in names}
        numbers |= {"other": other, "at_edge": row["at_edge"], **speed}
        numbers |= _both(row, side, "top1_difference", "points", percent_points)
        if speed["speed"] or numbers["points"]:
            texts.append(say("compared", numbers))
    return texts


def _both(row: Frame, side: str, name: str, word: str, form: Form) -> dict[str, str]:
    """Format a number with the settings that were run, and with best_`word` that at the best ones.

    The latter is "" if no search was made, so that both are the same.
    """
    here, best = (interval(row, f"{side}{at}{name}", form) for at in ("", AT_BEST))
    same = all(
        row[f"{side}{name}_{end}"] == row[f"{side}{AT_BEST}{name}_{end}"] for end in ("low", "high")
    )
    return {word: here, f"best_{word}": "" if same else best}


def _others(rows: Frame, chosen: Choice) -> list[str]:
    """Return a sentence for each tier of the other schemes, with their names."""
    tiers = pd.Series([tier_of(row) for _, row in rows.iterrows()], rows.index)
    of_tier = {tier: rows[tiers == tier] for tier in ("behind", "never", NOT_JUDGED)}
    lower = chosen.tied["less_accurate_than"].astype(bool)
    of_tier = {"tied": chosen.tied[~lower], "lower": chosen.tied[lower]} | of_tier
    named = {
        tier: [_known(row) | {"words": scheme_words(row)} for _, row in own.iterrows()]
        for tier, own in of_tier.items()
    }
    return [say("schemes", tier=tier, schemes=own) for tier, own in named.items() if own]


def _known(row: Frame) -> dict[str, Any]:
    """Return the cells of a row by column (None if missing), and its number of `runs`.

    Failed runs are not counted.
    """
    known = {name: None if pd.isna(value) else value for name, value in row.items()}
    return known | {"runs": row["n"] - row["n_failed"]}
