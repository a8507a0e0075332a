"""Tables of conclusions of a study, and the functions that derive them from its points."""

from collections.abc import Callable
from typing import NamedTuple

from paceline.analysis.clocks import clock_agreement, clocks
from paceline.analysis.configuration_table import NAME, configuration_table
from paceline.analysis.decision import decision
from paceline.analysis.frames import Frame
from paceline.analysis.predicted import predicted_comparisons
from paceline.analysis.tables import Tables


class Conclusion(NamedTuple):
    """Table of conclusions that `make` derives from a study; it is written to tables/`name`.csv."""

    name: str
    make: Callable[[Tables], Frame]


CONCLUSIONS = [
    Conclusion(NAME, configuration_table),
    Conclusion("decision", decision),
    Conclusion("clocks", clocks),
    Conclusion("clock_agreement", clock_agreement),
    Conclusion("predicted_comparisons", predicted_comparisons),
]
FOLDER = "tables"  # name of their folder in the report of a study
