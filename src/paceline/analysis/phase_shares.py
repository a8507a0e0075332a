"""Says on what the workers of each configuration spend their seconds."""

import pandas as pd

from paceline.analysis.configuration import groups
from paceline.analysis.frames import Frame
from paceline.analysis.tables import Tables

PHASES = {
    "seconds_compute": "compute",
    "seconds_communicate": "exchange",
    "seconds_data": "loading",
}


def phase_shares(tables: Tables) -> Frame:
    """Return one row per configuration: seconds and shares of each phase, over finished seeds.

    `compute`, `exchange` (in which waiting for others is included) and `loading` (of samples)
    are shares of the seconds of all workers; `<phase>_seconds` are those of the mean worker.
    """
    axes = ["kind", "data", *tables.axes]
    phases = tables.phases[["key", *PHASES]].merge(tables.finished[["key", *axes]], on="key")
    rows = []
    for configuration, workers in groups(phases, axes) if len(phases) else []:
        seconds = workers[list(PHASES)].mean().rename(PHASES)
        shares = (seconds / seconds.sum()).to_dict()
        rows.append(configuration | shares | seconds.add_suffix("_seconds").to_dict())
    columns = [*axes, *PHASES.values(), *(f"{name}_seconds" for name in PHASES.values())]
    return pd.DataFrame(rows, columns=columns)
