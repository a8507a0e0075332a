"""Writes the sentences on the rules of comparison that a study breaks."""

from typing import NamedTuple

from paceline.analysis.configuration import matching
from paceline.report.findings import StudyFindings
from paceline.report.number_format import plural


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
        found.append(BrokenRule(headline, f"{headline} ({row['asks']}): {row['evidence']}."))
    return found
