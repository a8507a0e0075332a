"""Decides which scheme to use in each situation: by the time to the target, and what it costs.

A situation is what a user finds himself in: the number of workers, and the settings that are not
the scheme's. Its schemes are one family, of which at most 5 % hold a false statement of a kind: on
accuracies against the reference, or on times against the best.
"""

import pandas as pd

from paceline.analysis.comparison import reference_scheme
from paceline.analysis.configuration import Configuration, groups, matching
from paceline.analysis.family_accuracy import accuracies, means_of_family
from paceline.analysis.family_times import family_times
from paceline.analysis.summary import counts
from paceline.analysis.tables import Frame, Row, Tables
from paceline.analysis.time_to_target import targets


def decision(tables: Tables) -> Frame:
    """Return one row per situation and scheme.

    - `success`: the share of runs that reach the target; a diverged run is one that does not;
    - `target_seconds`: the mean time to it, restricted to `horizon_seconds`;
    - `speedup`: that of the best one-worker runs, `baseline`, over it;
    - `worker_seconds`: the number of workers times `target_seconds`;
    - `tier`: best, the smallest time to the target; tied, not told from it; behind; never, if no
      run reached the target; empty without a target;
    - `top1_difference`: top-1 (of test, if known) less that of `reference`, a share, over finished
      runs, with simultaneous intervals; `accuracy` judges it (better, worse, equivalent, not
      told), and `within_margin` is 1 if it is shown to lie within the margin of the study.
    """
    names = [name for name in tables.axes if name != "scheme" and not name.startswith("scheme.")]
    situations = groups(tables.runs, list(dict.fromkeys(["kind", "data", *names])))
    rows = [row for situation, points in situations for row in _family(tables, situation, points)]
    return pd.DataFrame(rows)


def _family(tables: Tables, situation: Configuration, points: Frame) -> list[Row]:
    """Return the rows of one situation."""
    settings = [name for name in tables.axes if name not in situation]
    arms = groups(points, settings)
    reference = reference_scheme(tables.runs)
    members = [own for _, own in arms]
    schemes = [arm["scheme"] for arm, _ in arms]
    times = family_times(tables, situation, members, _target(tables, situation))
    judged = accuracies(members, schemes, reference, tables.margin)
    speeds = means_of_family(members, "images_per_second")
    return [
        situation | arm | {"n": len(own)} | counts(own) | time | accuracy | speed
        for (arm, own), time, accuracy, speed in zip(arms, times, judged, speeds, strict=True)
    ]


def _target(tables: Tables, situation: Configuration) -> float | None:
    goals = matching(targets(tables), {name: situation[name] for name in ("kind", "data")})
    return float(goals["target"].iloc[0]) if len(goals) else None
