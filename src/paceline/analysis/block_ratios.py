"""Computes throughput within blocks: that of each configuration over that of the reference."""

import pandas as pd

from paceline.analysis.block_drift import KEPT, blocks, reference
from paceline.analysis.configuration import configurations
from paceline.analysis.intervals import interval_of
from paceline.analysis.tables import Frame, Tables
from paceline.inference.ratio import paired_ratio

CAPTION = (
    "Images/s over the mean of the two reference runs in the same block: geometric means over the "
    "blocks that are kept, with 95 % t-intervals of logarithms. What a block shares, such as its "
    "minutes, cancels."
)


def block_ratios(tables: Tables) -> Frame:
    """Return one row per configuration but the reference; none for a study without blocks."""
    judged = blocks(tables)
    kept = judged[judged["verdict"] == KEPT].set_index("block")
    rows = []
    for configuration, points in configurations(tables.runs, tables.axes) if len(kept) else ():
        finished = points[points["status"] == "finished"].set_index("seed")
        speeds = finished["images_per_second"].astype(float).dropna()
        if configuration == reference(tables) or speeds.index.intersection(kept.index).empty:
            continue
        speeds = speeds[speeds.index.isin(kept.index)]
        means = kept.loc[speeds.index, ["first", "last"]].astype(float).mean(axis=1)
        ratio = interval_of(paired_ratio(speeds, means), len(speeds))
        rows.append(configuration | ratio.named("ratio"))
    return pd.DataFrame(rows, columns=None if rows else ["kind", *tables.axes])
