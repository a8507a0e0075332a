"""Writes the sentences on the rules of comparison that a study breaks."""

from paceline.analysis.configuration import matching
from paceline.report.findings import StudyFindings
from paceline.report.number_format import plural


def broken_rules(findings: StudyFindings) -> list[str]:
    """Return a sentence for each broken rule; each says so in words, for those who see no red."""
    rows = matching(findings.concluded["rules"], {"verdict": "broken"})
    return [
        f"Rule {row['rule']} of comparison is broken in {row['broken']} of "
        f"{plural(row['of'], 'case')} ({row['asks']}): {row['evidence']}."
        for _, row in rows.iterrows()
    ]
