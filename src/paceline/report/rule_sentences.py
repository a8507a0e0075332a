"""Writes the sentences on the rules of comparison that a study breaks."""

from typing import NamedTuple

from paceline.analysis.configuration import matching
from paceline.report.answer import schemes_to_use
from paceline.report.findings import StudyFindings
from paceline.report.number_format import plural
from paceline.report.words import scheme_words

_OF_ACCURACY = 1  # the rule of which the table of equal accuracy has the cases


class BrokenRule(NamedTuple):
    """Broken rule, in words for those who see no red: in how many cases, and the whole sentence."""

    headline: str
    text: str


def broken_rules(findings: StudyFindings) -> list[BrokenRule]:
    """Return what is said of each broken rule."""
    found = list[BrokenRule]()
    for _, row in matching(findings.concluded["rules"], {"verdict": "broken"}).iterrows():
        cases = f"{row['broken']} of {plural(row['of'], 'case')}"
        headline = f"Rule {row['rule']} of comparison is broken in {cases}"
        text = f"{headline} ({row['asks']}): {row['evidence']}."
        if row["rule"] == _OF_ACCURACY:
            touched = _of_the_answer(findings)
            headline += f", {len(touched) or 'none'} of them of a scheme to use"
            named = f"Of a scheme to use: {'; '.join(touched)}."
            text += f" {named if touched else 'None is of a scheme to use.'}"
        found.append(BrokenRule(headline, text))
    return found


def _of_the_answer(findings: StudyFindings) -> list[str]:
    """Name the schemes to use whose accuracy differs from that of one worker."""
    different = matching(findings.concluded["equal_accuracy"], {"verdict": "different"})
    columns = [name for name in ("kind", *findings.tables.axes) if name in different]
    return [
        f"{scheme_words(row)}, {situation.words}"
        for situation, row in schemes_to_use(findings)
        if len(matching(different, row[columns]))
    ]
