"""Sums up a study of time: agreement of clocks, and of predictions with what was observed."""

from collections.abc import Iterator, Sequence

from paceline.analysis.clocks import CLOSE, POINTS
from paceline.analysis.comparison import REFERENCE
from paceline.analysis.configuration import BUDGETS, groups, matching
from paceline.analysis.configuration_table import known
from paceline.analysis.frames import Frame, Row
from paceline.analysis.predicted import EXCHANGE_NEAR, NEAR, NOISE, SIZE
from paceline.report.answer import choices, compared_words, is_shown
from paceline.report.findings import StudyFindings
from paceline.report.number_format import decimals, percent, percent_points, signed, signed_percent
from paceline.report.page_tables import Table, filled
from paceline.report.spread import spread_words
from paceline.report.words import configuration_words, scheme_name


def summary(findings: StudyFindings) -> Table | None:
    """Return the table that sums up how well clocks and predictions agree with what was observed.

    None if the study is not about time. Of each comparison it has how many configurations agree,
    and the worst one.
    """
    rows = [*_agreement(findings), *_predictions(findings)]
    return filled("Agreement", rows) if rows else None


def _agreement(findings: StudyFindings) -> Iterator[Row]:
    """Yield a row for each number of runs that the virtual clock is compared by."""
    limits = {
        "images_per_second": f"images/s within {percent(CLOSE, 0)}",
        "staleness_mean": f"staleness within {percent(CLOSE, 0)}",
        "test_top1": f"top-1 at the most workers within ±{100 * POINTS:g} points",
    }
    for group, rows in groups(findings.concluded["clock_agreement"], ["against"]):
        for what, words in limits.items():
            judged = matching(rows, {"what": what})
            judged = judged[judged["verdict"] != "unknown"]
            if len(judged):
                far = judged["distance"].fillna(judged[["low", "high"]].abs().max(axis=1))
                worst = judged.loc[far.idxmax()]
                yield _row(
                    f"virtual against {group['against']}: {words}",
                    judged["verdict"] == "within",
                    f"{_difference(worst)} ({_words(findings, worst)})",
                )


def _difference(row: Frame) -> str:
    if row["what"] == "test_top1":
        return f"{percent_points(row['low'])} to {percent_points(row['high'])} points"
    is_ratio = row["measure"] == "ratio"
    return f"ratio {decimals(row['mean'])}" if is_ratio else f"{signed(row['mean'])} updates"


def _predictions(findings: StudyFindings) -> Iterator[Row]:
    """Yield rows on how well rates, comparisons, exchange and staleness were predicted.

    If the study is divided into halves, validation comes before development.
    """
    rates, exchanged = findings.known("rate_n"), findings.known("exchange_n")
    compared = findings.concluded["predicted_comparisons"]
    judged = rates[rates["rate_verdict"] != "calibrated"] if len(rates) else rates
    for half in sorted(judged["rate_half"].unique(), reverse=True) if len(judged) else ():
        of = f" ({half})" if half else ""
        for group, rows in groups(matching(judged, {"rate_half": half}), ["kind"]):
            yield _errors(findings, f"images/s {group['kind']}{of}", rows, "rate_", group["kind"])
        yield from _faster(matching(compared, {"half": half}), of)
        if len(exchanged):
            rows = matching(exchanged, {"exchange_half": half})
            yield _errors(findings, f"seconds of exchange{of}", rows, "exchange_", "exchange")
            yield from _staleness(known(rows, "exchange_staleness_p"), of)


def _errors(findings: StudyFindings, what: str, rows: Frame, prefix: str, kind: str) -> Row:
    """Return a row on relative errors of predictions, near if they are within the limit."""
    errors, limit = rows[f"{prefix}error"], {**NEAR, "exchange": EXCHANGE_NEAR}[kind]
    worst = rows.loc[errors.abs().idxmax()]
    return _row(
        f"{what}, within {percent(limit, 0)}",
        rows[f"{prefix}verdict"] == "near",
        f"{signed_percent(worst[f'{prefix}error'])} ({_words(findings, worst)})",
        percent(errors.abs().median(), 0),
    )


def _words(findings: StudyFindings, row: Frame) -> str:
    """Name a configuration without its budget, which its speed does not depend on."""
    names = [name for name in findings.varying if name not in BUDGETS]
    return configuration_words(row, ["workers", *names])


def _faster(rows: Frame, of: str) -> Iterator[Row]:
    """Yield a row on which of two sides is predicted to be faster, and one on their ratio."""
    apart = rows[rows["verdict"] != "too close"]
    if len(apart):
        what = f"the faster of two, if they differ by over {percent(NOISE, 0)}{of}"
        yield _row(what, apart["verdict"] == "right")
    ratios = matching(rows, {"kind": "paced", "against": REFERENCE})
    if len(ratios):
        errors = ratios["error"]
        what = f"times {scheme_name(REFERENCE)}{of}, within {percent(NEAR['paced'], 0)}"
        worst = signed_percent(errors.loc[errors.abs().idxmax()])
        median = percent(errors.abs().median(), 0)
        yield _row(what, errors.abs() <= NEAR["paced"], worst, median)


def _staleness(rows: Frame, of: str) -> Iterator[Row]:
    if len(rows):
        far = rows["exchange_staleness_distance"]
        yield _row(
            f"staleness{of}, by a test of size {percent(SIZE, 0)}",
            rows["exchange_staleness_verdict"] != "apart",
            f"{percent(far.max(), 0)} of pushes",
            percent(far.median(), 0),
        )


def _row(what: str, agree: Sequence[bool] | Frame, worst: str = "", median: str = "") -> Row:
    share = f"{sum(agree)} of {len(agree)}"
    return {"compared": what, "agree": share, "median error": median, "worst": worst}


def one_line(findings: StudyFindings) -> str:
    """Say the answer of a study in one line: agreement, what to use, or the best configuration."""
    if table := summary(findings):
        judged = [row for row in table.rows if "(development)" not in row[0]]
        return "; ".join(f"{row[0]}: {row[1]}" for row in judged or table.rows)
    if words := spread_words(findings):
        return words
    if findings.compares_all:
        return compared_words(findings)
    found, uses = choices(findings), dict[str, list[str]]()
    for situation, each in found:
        use = each.use or "none trained"
        if each.row is not None and not is_shown(findings, each.row):
            use = f"{use}, not shown"
        uses.setdefault(use, []).append(situation.words)
    return "; ".join(
        f"{use} ({words[0] if len(words) == 1 else f'{len(words)} of {len(found)} situations'})"
        for use, words in sorted(uses.items(), key=lambda item: -len(item[1]))
    )
