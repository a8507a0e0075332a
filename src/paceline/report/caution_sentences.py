"""Writes the sentences that a reader must know before believing the numbers."""

from collections.abc import Callable

from paceline.analysis.configuration import groups, matching
from paceline.analysis.tables import Frame
from paceline.measurement.rows import StudyState
from paceline.report.findings import StudyFindings
from paceline.report.how_it_was_run import BANDWIDTH, searched_with
from paceline.report.number_format import percent, plural, setting
from paceline.report.speed_sentences import dropped, one_machine, super_linear

_CROWDED = {
    "measured": "They shared cores, so their images/s and speed-ups are those of a crowded "
    "machine, not of the scheme.",
    "paced": "As expected of paced: they sleep most of the time.",
}
_MOST_REASONS = 3


def cautions(findings: StudyFindings) -> list[str]:
    """Return a sentence for each caution; none if the study gives no reason for one."""
    return [
        *_sentences(findings, "virtual", _virtual),
        *_free_links(findings),
        *_sentences(findings, "crowded", _crowded),
        *_sentences(findings, "late", _late),
        *_sentences(findings, "unlike", _unlike),
        *_ended_badly(findings),
        *_without_a_worker(findings.tables.finished),
        *_record_sentences(findings.tables.about),
        *_sentences(findings, "uncertified", _uncertified),
        *_sentences(findings, "one_machine", one_machine),
        *_sentences(findings, "dropped", dropped),
        *_sentences(findings, "super_linear", super_linear),
        *_sentences(findings, "few_seeds", _few_seeds),
        *_sentences(findings, "at_edge", _at_edge),
        *_tuned_elsewhere(findings),
    ]


def _sentences(
    findings: StudyFindings, what: str, sentence_of: Callable[[Frame], str]
) -> list[str]:
    rows = matching(findings.concluded["cautions"], {"what": what})
    return [sentence_of(row) for _, row in rows.iterrows()]


def _virtual(row: Frame) -> str:
    return (
        f"{row['points']} of {plural(row['of'], 'point')} {'is' if row['points'] == 1 else 'are'} "
        "virtual: time is modelled from the cluster profile, gradients are real."
    )


def _free_links(findings: StudyFindings) -> list[str]:
    """A study that has links of several kinds says so by its situations."""
    known = findings.tables.about["settings"]
    if "virtual" not in set(findings.tables.runs["kind"]) or known.get(BANDWIDTH, 0) is not None:
        return []
    return ["On their clock links cost nothing: what a scheme sends, and how often, takes no time."]


def _crowded(row: Frame) -> str:
    points = plural(row["of"], f"{row['kind']} point")
    return (
        f"{row['points']} of {points} had more processes (workers and servers of all points that "
        f"ran at once) than cores: {row['value']}. {_CROWDED[row['kind']]}"
    )


def _late(row: Frame) -> str:
    return (
        f"{row['points']} of {plural(row['of'], 'paced point')} did not keep the pace: real "
        f"compute took longer than the emulated in up to {percent(row['share'])} of the steps, so "
        "they are slower than what they stand for."
    )


def _unlike(row: Frame) -> str:
    number = "real images/s" if row["kind"] == "virtual" else "images/s"
    return (
        f"{row['kind'].capitalize()} points ran under unlike conditions, and their {number} are "
        f"averaged all the same: {row['name']} {row['value']}."
    )


def _uncertified(row: Frame) -> str:
    points = plural(row["points"], "point")
    return f"Of {row['scheme']} with {row['workers']:.0f} workers, {points}: {row['value']}."


def _few_seeds(row: Frame) -> str:
    return (
        f"{row['points']} of {row['of']} configurations have one finished seed alone: no interval, "
        "and nothing can be said of chance."
    )


def _at_edge(row: Frame) -> str:
    return (
        f"Of {row['points']} of {plural(row['of'], 'tuned configuration')} the best trial lies at "
        "an edge of what was tried, so that it cannot be said that they fail, diverge or cost "
        f"accuracy: {row['value']}."
    )


def _tuned_elsewhere(findings: StudyFindings) -> list[str]:
    runs, at = findings.tables.runs, findings.tables.tuned_at
    tuned = runs[runs["training.rate"] == "tuned"] if "training.rate" in runs else runs
    others = len(tuned) - len(matching(tuned, at))
    if not at or not others:
        return []
    return [
        f"{others} of {plural(len(tuned), 'tuned point')} ran elsewhere than with "
        f"{searched_with(at)}, where their rates were searched: schemes whose updates depend on "
        "times may have better ones."
    ]


def _ended_badly(findings: StudyFindings) -> list[str]:
    runs = findings.tables.runs
    texts = []
    for status in ("diverged", "failed"):
        for group, points in groups(runs[runs["status"] == status], ["scheme", "kind"]):
            what = plural(len(points), f"{group['kind']} point")
            reasons = list(dict.fromkeys(points["reason"]))
            more = len(reasons) - _MOST_REASONS
            texts.append(
                f"Of {group['scheme']}, {what} {status} "
                f"({'; '.join(_settings_with_seeds(findings, points))}), left out of every mean: "
                f"{'; '.join(reasons[:_MOST_REASONS])}"
                f"{f'; {more} more' if more > 0 else ''}"
            )
    return texts


def _without_a_worker(finished: Frame) -> list[str]:
    """Name the finished runs that lost a worker; only such runs have a reason."""
    return [
        f"Of {group['scheme']} with {group['workers']} workers, seed {group['seed']}, counted in "
        f"every mean all the same: {group['reason']}."
        for group, _ in groups(
            finished[finished["reason"] != ""], ["scheme", "workers", "seed", "reason"]
        )
    ]


def _settings_with_seeds(findings: StudyFindings, points: Frame) -> list[str]:
    """Describe `points` by setting, with their numbers of workers and seeds."""
    texts = []
    for group, same in groups(points, ["workers", *findings.varying]):
        parts = [f"{axis} {setting(value)}" for axis, value in group.items()]
        seeds = ", ".join(str(seed) for seed in sorted(same["seed"]))
        texts.append(", ".join([*parts, f"seed{'s' if len(same) > 1 else ''} {seeds}"]))
    return texts


def _record_sentences(about: StudyState) -> list[str]:
    missing, others, stale = about["missing"], about["other_records"], about["stale_code"]
    unfit = about["unfit"]
    texts = []
    if missing:
        texts.append(
            f"No record yet of {len(missing)} of {about['num_points']} points: "
            f"{', '.join(missing)}."
        )
    if unfit:
        faults = "; ".join(f"{key} ({fault})" for key, fault in unfit.items())
        texts.append(
            f"Not believed, and in no number: {plural(len(unfit), 'record')} whose files do not "
            f"fit each other or what a record is: {faults}."
        )
    if others:
        texts.append(
            f"Left out, of earlier settings in the same folder: {plural(len(others), 'record')}, "
            f"{', '.join(others)}."
        )
    if stale:
        texts.append(f"Made by other code than the latest: {plural(stale, 'record')}.")
    return texts
