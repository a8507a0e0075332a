"""Finds which scheme has the highest mean images/s at the most workers, in how many settings."""

import pandas as pd

from paceline.analysis.configuration import groups
from paceline.analysis.summary import summary
from paceline.analysis.tables import Frame, Tables, as_written

_COLUMNS = ["kind", "workers", "scheme", "settings_won", "settings", "n_least", "n_most"]


def fastest(tables: Tables) -> Frame:
    """Return a row per kind and scheme that is first in a setting with several schemes.

    `settings`: those in which several schemes have finished points at the most `workers`.
    `n_least`, `n_most`: of the means there.
    """
    means = as_written(summary(tables))
    rows = []
    for where, same in groups(means[means["images_per_second_mean"].notna()], ["kind"]):
        most = same[same["workers"] == same["workers"].max()]
        settings = [schemes for _, schemes in groups(most, tables.facets)]
        settings = [schemes for schemes in settings if schemes["scheme"].nunique() > 1]
        first = [s.loc[s["images_per_second_mean"].idxmax(), "scheme"] for s in settings]
        about = where | {"workers": most["workers"].max(), "settings": len(settings)}
        n = most["images_per_second_n"]
        about |= {"n_least": n.min(), "n_most": n.max()}
        for scheme in dict.fromkeys(first):
            rows.append(about | {"scheme": scheme, "settings_won": first.count(scheme)})
    return pd.DataFrame(rows, columns=_COLUMNS)
