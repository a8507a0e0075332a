"""Tidy tables of a study, `reports/<study>/`, collected from its records."""

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.errors import SettingError
from paceline.record.archive import ARCHIVE, write_archive
from paceline.record.point_config import flat_settings
from paceline.record.reading import fault_of
from paceline.record.rows import TUNING, StudyState
from paceline.study.overview import num_of_other_code
from paceline.study.study_blocks import REPEAT, is_repeat
from paceline.study.study_point import StudyPoint
from paceline.study.study_points import STRONG, Study

Row = Mapping[str, Any]  # cells of a CSV file


def collect(study: str, root: Path, overrides: Sequence[str] = ()) -> Path:
    """Collect the study that `experiments/<study>.yaml` names, see `collect_study`."""
    return collect_study(Study(study, root, overrides))


def collect_study(study: Study) -> Path:
    """Write runs.csv, tuning.csv, study.json and the archive of the records; return their folder.

    The points are those that the study names today, in its order; the trials of its hyperparameter
    search are only in tuning.csv and the archive. Records of earlier settings in the same folder
    are listed, never averaged.
    Raises SettingError if no point has a record.
    """
    name, points = study.points[0].config.study, study.with_repeats()
    if points[0].config.values.get("exchange"):
        raise SettingError("study", f"{name} is a study of exchanges: paceline sweep {name}")
    finished = [point for point in points if point.result]
    if not finished:
        raise SettingError("study", f"{name} has no record yet: paceline sweep {name}")
    folder = study.root / "reports" / name
    folder.mkdir(parents=True, exist_ok=True)
    rows = [_row(point) for point in finished]
    _write(folder / "runs.csv", dict.fromkeys(name for row in rows for name in row), rows)
    tuning, tuned = study.tuning, study.configurations
    axes = tuned[0].axes if tuned else ()
    rows = [row for each in tuned for row in each.rows()]
    _write(folder / "tuning.csv", ("key", *axes, *TUNING), rows)
    trials = study.trials
    write_archive(folder / ARCHIVE, [each.folder for each in (*points, *trials) if each.result])
    state = _state(name, points, trials, study.root, dict(tuning.at) if tuning else {})
    (folder / "study.json").write_text(json.dumps(state, indent=1) + "\n")
    _print(state, folder)
    return folder


def _row(point: StudyPoint) -> Row:
    result = dict(point.result or {})
    nested = {name: result.pop(name, {}) for name in ("hardware", "versions")}
    own = {name: value for name, value in point.axes.items() if name == STRONG}
    axes = {name: value for name, value in point.axes.items() if name not in result} | own
    flat = {f"{name}.{k}": value for name, group in nested.items() for k, value in group.items()}
    return {name: _cell(value) for name, value in (result | axes | flat).items()}


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict | bool) else value


def _write(path: Path, columns: Iterable[str], rows: Iterable[Row]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(columns), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _state(
    study: str,
    points: Sequence[StudyPoint],
    trials: Sequence[StudyPoint],
    root: Path,
    tuned_at: Row,
) -> StudyState:
    keys = {point.key for point in (*points, *trials)}
    records = sorted(path.parent.name for path in (root / "runs" / study).glob("*/result.json"))
    return {
        "study": study,
        "axes": [name for name in points[0].axes if name != REPEAT],
        "question": points[0].config.question,
        "num_points": sum(not is_repeat(point) for point in points),
        "missing": [p.key for p in points if not p.result and not is_repeat(p)],
        "other_records": [key for key in records if key not in keys and not key.startswith(".")],
        "unfit": {p.key: fault for p in (*points, *trials) if (fault := fault_of(p.folder))},
        "stale_code": num_of_other_code(p.result for p in points if p.result),
        "margin": points[0].config.margin,
        "target": dict(points[0].config.asked_target or {}) or None,
        "settings": _common([flat_settings(point.config.values) for point in points]),
        "tuned_at": tuned_at,
    }


def _common(settings: Sequence[Row]) -> Row:
    """Return the settings that all points have with the same value."""
    first, *others = settings
    absent = object()
    return {
        name: value
        for name, value in first.items()
        if all(each.get(name, absent) == value for each in others)
    }


def _print(state: StudyState, folder: Path) -> None:
    missing, others = state["missing"], state["other_records"]
    print(f"{folder / 'runs.csv'}: {state['num_points'] - len(missing)} points")
    if missing:
        print(f"no record yet: {', '.join(missing)}")
    for key, fault in state["unfit"].items():
        print(f"{key} does not fit, and is in no number: {fault}")
    if others:
        print(f"left out, of other settings: {', '.join(others)}")
    if state["stale_code"]:
        print(
            f"{state['stale_code']} records were made by other code; sweep.rerun=stale renews them"
        )
