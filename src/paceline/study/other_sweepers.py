"""What a sweeper of another package than Paceline's has tried, and what was best."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from paceline.record.point_config import flat_settings
from paceline.record.reading import read_config, read_result
from paceline.record.record import records_in
from paceline.study.compose import composed, parsed
from paceline.study.study_points import Study, studies

_RESULTS = "optimization_results.yaml"  # as Hydra's sweepers write it, beside the records


def tried(overrides: Sequence[str], root: Path, since: float) -> tuple[Study | None, str]:
    """Return the points of a multirun that began at the time `since`, and its best trial in words.

    Only the sweeper knows all points: here they are the records of the study that differ from the
    other settings in what was swept alone; None if there are none, or if the study has a file in
    experiments/, which names its points. The words are "" if the sweeper wrote down no best trial.
    """
    of_hydra = ("hydra/", "hydra.")
    own = [
        word
        for word in overrides
        if word.startswith("hydra.searchpath=") or not word.lstrip("+~").startswith(of_hydra)
    ]
    axes = [each.get_key_element() for each in parsed(own) if each.is_sweep_override()]
    fixed = [word for word in own if word.partition("=")[0] not in axes]
    name, best = composed(fixed, root).study, ""
    if (results := root / "runs" / name / _RESULTS).is_file() and results.stat().st_mtime > since:
        found: dict[str, Any] = yaml.safe_load(results.read_text())
        if "best_params" in found:
            words = " ".join(f"{axis}={value}" for axis, value in found["best_params"].items())
            best = f"best: validation top-1 {100 * found['best_value']:.2f} %, {words}"
    if name in studies(root):
        return None, best
    grids = dict[str, dict[str, Any]]()
    for folder in records_in(root / "runs" / name):
        if read_result(folder) is not None:
            config = read_config(folder)
            values = {**flat_settings(config.values), **config.names}
            grid = {axis: values.get(axis.lstrip("+")) for axis in axes}
            if None in grid.values():  # of a group without a name in the record
                return None, best
            grids[str(grid)] = grid
    if not grids:
        return None, best
    study = Study(None, root, fixed, grids=list(grids.values()))
    study.grids = [[point] for point in study.points if point.result]
    return study if study.grids else None, best
