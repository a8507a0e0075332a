"""Tells what hyperparameter searches found, and by how many trials.

A search of a configuration consists of trials, each a run with other settings (such as the learning
rate). The best trial is chosen by its accuracy on validation images.
"""

from paceline.analysis.configuration import Configuration, matching
from paceline.analysis.frames import Frame
from paceline.analysis.tables import Tables
from paceline.record.rows import OWN, TUNING, of_one_rate

RATE = "training.rate"


def edge_of(tables: Tables, configuration: Configuration) -> str:
    """Return the edge of the search range at which a configuration's best trial is; "" if inside.

    A better rate may lie outside the range, so the configuration must not be judged. The same holds
    before its tuning has ended; the result then says so. A learning rate that follows from a rule
    is not tuned and has no edge.
    """
    if tables.tuning.empty or configuration.get(RATE, "tuned") != "tuned":
        return ""
    edges = _best(tables, configuration)["at_edge"]
    return str(edges.iloc[0]) if len(edges) else "tuning has not ended"


def untuned_schemes(tables: Tables) -> list[str]:
    """Return the schemes that were compared at one rate, which was tuned for none of them."""
    rows = tables.runs[tables.runs["top1"].notna()].to_dict("records")
    return of_one_rate(rows, tables.about["axes"], tables.about["settings"].get(RATE))


def tuning_axes(tables: Tables) -> list[str]:
    """Return the columns of tuning.csv that identify a configuration."""
    return [name for name in tables.tuning if name not in ("key", *TUNING, OWN)]


def best_trials(tables: Tables) -> Frame:
    """Return the rows of tuning.csv of those trials that were chosen as the best."""
    return tables.tuning[tables.tuning["chosen"] == "true"]


def searched_setting(tables: Tables, configuration: Configuration) -> str:
    """Return the setting of its scheme that the search of a configuration chose, as <name>=<value>;
    "" if none was searched.
    """
    best = _best(tables, configuration)
    return str(best["own"].iloc[0]) if len(best) == 1 and "own" in best else ""


def _best(tables: Tables, configuration: Configuration) -> Frame:
    return matching(best_trials(tables), _own(tables, configuration))


def _own(tables: Tables, configuration: Configuration) -> Configuration:
    names = tuning_axes(tables)
    return {name: value for name, value in configuration.items() if name in names}
