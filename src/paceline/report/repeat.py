"""Writes the command that repeats a point of a study."""

import shlex

import pandas as pd

from paceline.analysis.tables import Frame
from paceline.report.findings import StudyFindings
from paceline.report.number_format import setting


def repeat_command(findings: StudyFindings, row: Frame) -> str:
    """Return the command line of the point of a row of runs.csv, with each axis of the study.

    A tuned rate is that of the study's own trials, whose records must be there.
    """
    about = findings.tables.about
    axes = [name for name in about["axes"] if name in row and not pd.isna(row[name])]
    chosen = [shlex.quote(f"{name}={setting(row[name])}") for name in axes]
    return first_of_command(findings) + " ".join(chosen)


def first_of_command(findings: StudyFindings) -> str:
    """Return what the commands of all points of a study begin with."""
    return f"paceline train experiments={findings.tables.about['study']} "
