"""Counts the settings in which a scheme has the highest mean images/s at the most workers."""

import pandas as pd

from paceline.analysis.configuration import groups
from paceline.analysis.summary import summary
from paceline.analysis.tables import Frame, Tables, as_written

_COLUMNS = ["kind", "workers", "scheme", "settings_won", "settings", "n_least", "n_most"]


def fastest(tables: Tables) -> Frame:
    """Return one row per kind and scheme that is first in at least one setting.

    `workers` is the largest number of workers of the kind. `settings` counts the settings in which
    several schemes have finished points with that many workers; `settings_won` counts those in
    which the scheme is first. `n_least` and `n_most` are the smallest and the largest n of the
    means.
    """
    means = as_written(summary(tables))
    rows = []
    for group, same in groups(means[means["images_per_second_mean"].notna()], ["kind"]):
        most = same[same["workers"] == same["workers"].max()]
        settings = [schemes for _, schemes in groups(most, tables.facets)]
        settings = [schemes for schemes in settings if schemes["scheme"].nunique() > 1]
        first = [s.loc[s["images_per_second_mean"].idxmax(), "scheme"] for s in settings]
        about = group | {"workers": most["workers"].max(), "settings": len(settings)}
        n = most["images_per_second_n"]
        about |= {"n_least": n.min(), "n_most": n.max()}
        for scheme in dict.fromkeys(first):
            rows.append(about | {"scheme": scheme, "settings_won": first.count(scheme)})
    return pd.DataFrame(rows, columns=_COLUMNS)
