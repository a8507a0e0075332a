"""Reads from a study's tables how many updates one worker needs to the study's target."""

from pathlib import Path

import pandas as pd

from paceline.errors import SettingError

_KINDS = ("measured", "paced", "virtual")  # the first that the study has
_COLUMNS = ["kind", "batch_size", "workers", "n_failed"]
_COLUMNS += ["target_n_censored", "target_samples_mean"]


def updates_to_target(folder: Path, model: str, data: str) -> dict[int, float]:
    """Return the updates by batch size, as means over the runs of one worker in reports/<study>/.

    Batch sizes with runs that never got there are left out. Raises SettingError("study") if the
    tables are missing or of another model or data set.
    """
    table, runs = folder / "tables/configurations.csv", folder / "runs.csv"
    if not table.is_file():
        raise SettingError("study", f"there is no {table}; run paceline report {folder.name}")
    trained = pd.read_csv(runs)
    for name, asked in (("model", model), ("data", data)):
        if set(trained[name]) != {asked}:
            message = f"{folder.name} has {name}={','.join(sorted(set(trained[name])))}"
            raise SettingError("study", f"{message}, not {asked}")
    rows = pd.read_csv(table).reindex(columns=_COLUMNS)  # some are absent without a target
    alone = rows.query("workers == 1 and target_n_censored == 0 and n_failed == 0")
    kinds = [kind for kind in _KINDS if kind in set(alone["kind"])]
    of_kind = alone.loc[alone["kind"].isin(kinds[:1])]
    means = of_kind.groupby("batch_size")["target_samples_mean"].mean()
    return {int(size): samples / int(size) for size, samples in means.items()}  # type: ignore[call-overload]
