"""Detects conditions that weaken the meaning of measured throughput."""

from collections.abc import Iterator

import pandas as pd

from paceline.analysis.block_drift import KEPT, minutes_of
from paceline.analysis.configuration import groups
from paceline.analysis.frames import Frame, Row
from paceline.analysis.scaling import scaling
from paceline.analysis.tables import Tables

MOST_EFFICIENT = 1.05  # mean above which more than the workers must have helped


def one_machine(runs: Frame) -> Iterator[Row]:
    """Yield a row per machine whose images/s were measured."""
    if "started" not in runs or "hardware.cpu" not in runs:
        return
    measured = runs[(runs["kind"] == "measured") & (runs["started"] != "")]
    for machine, points in groups(measured, ["hardware.cpu", "hardware.cores"]):
        starts = pd.to_datetime(points["started"])
        yield {
            "what": "one_machine",
            "kind": "measured",
            "name": f"{machine['hardware.cpu']}, {machine['hardware.cores']:.0f} cores",
            "value": str(starts.dt.floor("h").nunique()),
            "started": points.loc[starts.idxmin(), "started"],
            "minutes": minutes_of(points),
            "points": len(points),
            "of": len(runs),
        }


def dropped(tables: Tables) -> Iterator[Row]:
    """Yield a row if blocks were dropped."""
    bad = tables.blocks[tables.blocks["verdict"] != KEPT]
    value = "; ".join(_block(row) for _, row in bad.iterrows())
    if len(bad):
        yield {"what": "dropped", "value": value, "points": len(bad), "of": len(tables.blocks)}


def super_linear(tables: Tables) -> Iterator[Row]:
    """Yield a row if speed-ups exceed what their workers can give."""
    table = scaling(tables)
    several = table[table["baseline"] != "itself"]
    mean, low = several["efficiency_mean"], several["efficiency_low"]
    found = several[(low > 1) | (mean > MOST_EFFICIENT)]
    value = "; ".join(_efficiency(row, tables) for _, row in found.iterrows())
    if len(found):
        yield {"what": "super_linear", "value": value, "points": len(found), "of": len(several)}


def _block(row: Frame) -> str:
    reason = row["verdict"].removeprefix("dropped: ")
    return f"block {row['block']}: {reason}{_percent_of(row['drift'])}"


def _percent_of(drift: float) -> str:
    return "" if pd.isna(drift) else f", {100 * drift:+.1f} %"


def _efficiency(row: Frame, tables: Tables) -> str:
    known = [name for name in tables.facets if not pd.isna(row[name])]
    settings = [f"{name} {row[name]}" for name in known]
    parts = [row["scheme"], f"{row['workers']} workers", *settings]
    return f"{', '.join(parts)}: {100 * row['efficiency_mean']:.0f} %"
