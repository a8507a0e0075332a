"""Computes throughput within blocks: that of each configuration over that of the reference."""

import pandas as pd

from paceline.analysis.block_drift import KEPT
from paceline.analysis.configuration import configurations
from paceline.analysis.frames import Frame
from paceline.analysis.intervals import interval_of
from paceline.analysis.statistics.ratio import paired_ratio
from paceline.analysis.tables import Tables

CAPTION = (
    "Images/s over the mean of the two reference runs in the same block: geometric means over the "
    "blocks that are kept, with 95 % t-intervals of logarithms. What a block shares, such as its "
    "minutes, cancels."
)


def block_ratios(tables: Tables) -> Frame:
    """Return one row per configuration but the reference; none for a study without blocks.

    A configuration that finished in no block that is kept has no row.
    """
    kept = tables.blocks[tables.blocks["verdict"] == KEPT].set_index("block")
    references = kept[["first", "last"]].astype(float).mean(axis=1).rename("reference")
    repeated = [configuration for configuration, _ in configurations(tables.repeats, tables.axes)]
    rows = []
    for configuration, points in configurations(tables.runs, tables.axes):
        finished = points[points["status"] == "finished"].set_index("seed")
        both = finished.join(references, how="inner").dropna(subset="images_per_second")
        if len(both) and configuration not in repeated:
            found = paired_ratio(both["images_per_second"], both["reference"])
            rows.append(configuration | interval_of(found, len(both)).named("ratio"))
    return pd.DataFrame(rows, columns=None if rows else ["kind", *tables.axes])
