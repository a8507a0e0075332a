"""Collects the records of a study into tables in `reports/<study>/`."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from paceline.record.archive import ARCHIVE, write_archive
from paceline.record.data_digest import look_again
from paceline.record.point_config import flat_settings
from paceline.record.provenance import source_digest
from paceline.record.reading import fault_of
from paceline.record.record import Row, records_in, write_rows
from paceline.record.report_files import replaced
from paceline.record.rows import OWN, TUNING, StudyState, of_one_rate
from paceline.study.study_point import Points, StudyPoint
from paceline.study.study_points import STRONG, Study


def collect(study: Study) -> Path:
    """Write runs.csv, tuning.csv, study.json and the archive of the records; return their folder.

    They are written whole or not at all. runs.csv has a row for each point with a record, in the
    order in which the study's file now names the points. Trials of its hyperparameter search are
    only in tuning.csv and in the archive. Records in the study's folder of runs/ that belong to no
    point and no trial are only printed. At least one point must have a record. Raises
    SettingError("study") if the files cannot be written.
    """
    name, points = study.points[0].config.study, study.points
    folder = study.root / "reports" / name
    runs = [_row(point) for point in points if point.result]
    tuned, trials = study.configurations, study.trials
    axes = tuned[0].axes if tuned else ()
    tried = [row for each in tuned for row in each.rows()]
    state = _state(points, trials, [asdict(tuning) for tuning in study.tunings])
    with replaced(folder) as new:
        write_rows(new / "runs.csv", dict.fromkeys(name for row in runs for name in row), runs)
        own = (OWN,) if any(OWN in row for row in tried) else ()
        write_rows(new / "tuning.csv", ("key", *axes, *TUNING, *own), tried)
        write_archive(new / ARCHIVE, [each.folder for each in (*points, *trials) if each.result])
        (new / "study.json").write_text(json.dumps(state, indent=1) + "\n")
    _print(study, state, folder)
    rate = points[0].config.values["training"]["rate"]
    if schemes := of_one_rate(runs, state["axes"], rate):
        words = "their one learning rate was tuned for none of them (training.rate=tuned)"
        print(f"do not compare the accuracies of {', '.join(schemes)}: {words}")
    return folder


def num_of_other_code(records: Iterable[Row]) -> int:
    """Return how many records were made by a different version of the code.

    `records`: results of records, or the rows of runs.csv.
    """
    digest = source_digest()
    return sum(record["source_digest"] != digest for record in records if "source_digest" in record)


def _row(point: StudyPoint) -> Row:
    row = dict(point.result or {})
    nested = {name: row.pop(name, {}) for name in ("hardware", "versions")}
    row |= {name: v for name, v in point.axes.items() if name not in row or name == STRONG}
    row |= {f"{name}.{k}": value for name, group in nested.items() for k, value in group.items()}
    nested_types = (list, dict, bool)
    return {k: json.dumps(v) if isinstance(v, nested_types) else v for k, v in row.items()}


def _state(points: Points, trials: Points, tunings: list[dict[str, Any]]) -> StudyState:
    config = points[0].config
    return {
        "study": config.study,
        "axes": list(points[0].axes),
        "question": config.question,
        "num_points": len(points),
        "missing": [point.key for point in points if not point.result],
        "unfit": {p.key: fault for p in (*points, *trials) if (fault := fault_of(p.folder))},
        "margin": config.margin,
        "target": dict(config.asked_target or {}) or None,
        "settings": _common([flat_settings(point.config.values) for point in points]),
        "tuning": tunings,
    }


def _common(settings: Sequence[Row]) -> Row:
    """Return the settings that all points have with the same value."""
    (first, *others), absent = settings, object()
    return {k: v for k, v in first.items() if all(each.get(k, absent) == v for each in others)}


def _print(study: Study, state: StudyState, folder: Path) -> None:
    """Print what the study lacks, and which records here are not, or no longer, of its points."""
    points, trials = study.points, study.trials
    missing = state["missing"]
    print(f"{folder / 'runs.csv'}: {state['num_points'] - len(missing)} points")
    if missing:
        print(f"no record yet: {', '.join(missing)}")
    for key, fault in state["unfit"].items():
        print(f"{key} is invalid and is ignored: {fault}")
    records = records_in(study.root / "runs" / state["study"])
    keys = {point.key for point in (*points, *trials)}
    if others := len({record.name for record in records} - keys):
        print(f"records of other settings, left out: {others}")
    look_again()  # data may have changed during the sweep
    stale = {
        "are of data that have changed since": sum(
            point.is_of_other_data for point in (*points, *trials)
        ),
        "were made by a different version of the code": num_of_other_code(
            point.result for point in points if point.result
        ),
    }
    for what, number in stale.items():
        if number:
            print(f"{number} records {what}; sweep.rerun=stale renews them")
