"""Speed-up and efficiency against one worker of the same configuration otherwise; where its scheme
has no run with one worker, against the fastest that has: alone, a worker of any is plain SGD.

    speed-up = images/s of K workers / images/s of one worker, seed by seed
    efficiency = speed-up / K

Weak scaling in the batch: images per worker and step stay, so K workers take K times as many at
once; samples in total stay too.
"""

import pandas as pd

from paceline.analysis.configuration import Configuration, configurations, matching, paired
from paceline.analysis.intervals import interval
from paceline.analysis.tables import Frame, Row, Tables


def scaling(tables: Tables) -> Frame:
    """Return a row per configuration. `baseline` names the points in use, or says why there are
    none; `baseline_scheme`: theirs.
    """
    finished = tables.finished
    rows = [
        _row(configuration, matching(finished, configuration), finished)
        for configuration, _ in configurations(tables.runs, tables.axes)
    ]
    return pd.DataFrame(rows)


def unequal_samples(tables: Tables) -> tuple[float, float] | None:
    """Return the fewest and the most samples in total of finished points; None if all are equal.

    They may differ by 1 %: the last global batch is whole.
    """
    samples = tables.finished["samples"].dropna()
    equal = samples.empty or samples.max() <= 1.01 * samples.min()
    return None if equal else (samples.min(), samples.max())


def _row(configuration: Configuration, points: Frame, finished: Frame) -> Row:
    base = _base(finished, configuration)
    pairs = paired(points, base, "images_per_second")
    ratios = pairs["value"] / pairs["base"]
    return (
        configuration
        | {
            "baseline": _named(configuration, points, base, len(pairs)),
            "baseline_scheme": "" if base.empty else base["scheme"].iloc[0],
            "n_unpaired": len(points) - len(pairs),
        }
        | interval(ratios).named("speedup")
        | interval(ratios / configuration["workers"]).named("efficiency")
    )


def _base(finished: Frame, configuration: Configuration) -> Frame:
    alone = configuration | {"workers": 1}
    own = matching(finished, alone)
    if len(own):
        return own
    others = matching(finished, {name: alone[name] for name in alone if name != "scheme"})
    means = others.groupby("scheme")["images_per_second"].mean()
    return others[others["scheme"] == means.idxmax()] if len(others) else others


def _named(configuration: Configuration, points: Frame, base: Frame, num_pairs: int) -> str:
    if points.empty:
        return "none: no finished point"
    if base.empty:
        return "none: no finished point with one worker"
    if configuration["workers"] == 1:
        return "itself"
    if not num_pairs:
        return "none: no seed in common with one worker"
    scheme = base["scheme"].iloc[0]
    worker = "1 worker" if scheme == configuration["scheme"] else f"1 worker of {scheme}"
    return f"{worker}, same settings otherwise, {num_pairs} seeds in common"
