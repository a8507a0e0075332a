"""Says what a reader must know before trusting the numbers of a study.

These are cautions (conditions that weaken some numbers), and broken rules of comparison.
"""

from collections.abc import Iterator
from typing import NamedTuple

from paceline.analysis.configuration import NOT_TRAINED, groups, matching
from paceline.analysis.frames import Frame
from paceline.analysis.tables import Tables
from paceline.record.rows import of_one_rate
from paceline.report.answer import choices
from paceline.report.findings import RATE, StudyFindings
from paceline.report.how_it_was_run import BANDWIDTH, JITTER, SLOW_FACTOR, is_assumed, searched_with
from paceline.report.words import say, scheme_name, values_words

# Rows of cautions.csv, before and after other sentences.
_ON_TIME = ("crowded", "shared_gpu", "late", "unlike")
_ON_CHANCE = ("uncertified", "one_machine", "super_linear", "few_seeds", "at_edge")
_OF_RECORDS = ("missing", "unfit")
_OF_FIRST, _OF_REPORTING = 1, 5  # numbers of rules: on schemes that are first, on records


class BrokenRule(NamedTuple):
    """Broken rule of comparison.

    `headline` says in how many cases the rule is broken, and `text` names the evidence. `affects`:
    True if a recommendation may be affected.
    """

    headline: str
    text: str
    affects: bool


def cautions(findings: StudyFindings) -> list[str]:
    """Return a sentence for each condition that weakens the numbers of the study."""
    about = findings.tables.about
    return [
        *_found(findings, "mixed_data"),
        *_found(findings, "virtual"),
        *_free_links(findings),
        *_assumed_times(findings),
        *(text for name in _ON_TIME for text in _found(findings, name)),
        *_ended_badly(findings),
        *(say(f"records_{name}", about) for name in _OF_RECORDS if about.get(name)),
        *(text for name in _ON_CHANCE for text in _found(findings, name)),
        *_tuned_elsewhere(findings),
    ]


def _found(findings: StudyFindings, what: str) -> Iterator[str]:
    for _, row in matching(findings.concluded["cautions"], {"what": what}).iterrows():
        scheme = scheme_name(row["scheme"]) if row["scheme"] else ""
        yield say(what, row, scheme=scheme)


def _free_links(findings: StudyFindings) -> list[str]:
    """Return a sentence if the links of the whole study take no time."""
    is_virtual = "virtual" in set(findings.tables.runs["kind"])
    is_free = findings.tables.about["settings"].get(BANDWIDTH, 0) is None
    return [say("free_links")] if is_virtual and is_free else []


def _assumed_times(findings: StudyFindings) -> list[str]:
    """Return a sentence if the study assumes how much steps of virtual workers vary."""
    runs, settings = findings.tables.runs, findings.tables.about["settings"]
    jitter, factor = settings.get(JITTER), settings.get(SLOW_FACTOR, 1)
    if "virtual" not in set(runs["kind"]) or not jitter or not is_assumed(findings, JITTER):
        return []
    slow = runs["cluster.slow_workers"].max() > 0 if "cluster.slow_workers" in runs else False
    return [say("assumed_times", jitter=jitter, factor=factor if slow else 1)]


def _tuned_elsewhere(findings: StudyFindings) -> list[str]:
    runs, at = findings.tables.runs, findings.tables.tuned_at
    tuned = matching(runs, {RATE: "tuned"}) if RATE in runs else runs
    others = len(tuned) - len(matching(tuned, at))
    if not at or not others:
        return []
    return [say("tuned_elsewhere", points=others, of=len(tuned), at=searched_with(at))]


def unsearched(tables: Tables) -> list[str]:
    """Return a sentence if schemes are compared at a rate that was searched for none of them."""
    scored = tables.runs[tables.runs["top1"].notna()]
    rows = scored.to_dict("records")
    schemes = of_one_rate(rows, tables.about["axes"], tables.about["settings"].get(RATE))
    return [say("of_one_rate", schemes=list(map(scheme_name, schemes)))] if schemes else []


def _ended_badly(findings: StudyFindings) -> Iterator[str]:
    """Say which runs did not finish, and which finished with a reason to doubt them."""
    runs = findings.tables.runs
    for status in (*NOT_TRAINED, "failed", "finished"):
        rows = runs[(runs["status"] == status) & ((runs["reason"] != "") | (status != "finished"))]
        for group, points in groups(rows, ["scheme", "kind"]):
            yield say(
                "ended",
                group | {"scheme": scheme_name(group["scheme"])},
                points=len(points),
                status=status,
                settings=_settings_with_seeds(findings, points),
                reasons=list(dict.fromkeys(points["reason"])),
            )


def _settings_with_seeds(findings: StudyFindings, points: Frame) -> list[str]:
    """Describe `points` by number of workers and setting, each with its seeds."""
    texts = []
    for group, same in groups(points, ["workers", *findings.varying]):
        seeds = ", ".join(str(seed) for seed in sorted(same["seed"]))
        texts.append(f"{values_words(group, group)}, seed{'s' if len(same) > 1 else ''} {seeds}")
    return texts


def broken_rules(findings: StudyFindings) -> list[BrokenRule]:
    """Return a headline and a text for each rule of comparison that the study breaks."""
    rows = matching(findings.concluded["rules"], {"verdict": "broken"})
    recommends = any(chosen.is_scheme for _, chosen in choices(findings))
    return [
        BrokenRule(
            say("rule_headline", row),
            say("rule_text", row),
            row["rule"] == _OF_FIRST or (recommends and row["rule"] != _OF_REPORTING),
        )
        for _, row in rows.iterrows()
    ]
