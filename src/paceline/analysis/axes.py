"""Selects the axes of a study by which its configurations must be named."""

from paceline.analysis.frames import Frame
from paceline.analysis.tables import Tables


def varying(tables: Tables) -> list[str]:
    """Return the axes besides scheme, workers and seed that take more than one value.

    Axes that the kind of a number implies are left out.
    """
    runs, implied = tables.runs, implied_by_kind(tables)
    axes = [axis for axis in tables.facets if axis not in implied]
    return [axis for axis in axes if runs[axis].nunique(dropna=False) > 1]


def implied_by_kind(tables: Tables) -> list[str]:
    """Return the axes of the cluster that have a single value for each kind of number.

    The result is empty if the study has a single kind.
    """
    kinds = tables.runs.groupby("kind")
    if len(kinds) < 2:
        return []
    return [axis for axis in clock_axes(tables) if kinds[axis].nunique(dropna=False).max() == 1]


def implied_by_scheme(tables: Tables) -> Frame:
    """Return a row per scheme with those of its settings that have one value wherever it runs."""
    names = [name for name in tables.about["axes"] if name.startswith("scheme.")]
    names = [name for name in names if name in tables.runs and name not in tables.axes]
    own = tables.runs[["scheme", *names]]
    return own.groupby("scheme", sort=False).head(1).reset_index(drop=True)


def clock_axes(tables: Tables) -> list[str]:
    """Return the axes whose values determine the clock.

    They are only `cluster` if that is an axis, and else those axes `cluster.*` that have no value
    in common on both clocks.
    """
    axes = [axis for axis in tables.axes if axis.startswith("cluster")]
    if "cluster" in axes:
        return ["cluster"]
    on_virtual = tables.runs["kind"] == "virtual"
    return [
        axis
        for axis in axes
        if on_virtual.groupby(tables.runs[axis], dropna=False).nunique().max() == 1
    ]
