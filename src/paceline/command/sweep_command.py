"""Run the points of a study that have no record yet -> reports/STUDY/runs.csv.

Settings may follow, as in train: seed=0,1.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from paceline.errors import SettingError
from paceline.record.target import Target
from paceline.study.compose import hydra_errors
from paceline.study.hydra_entry import multirun
from paceline.study.progress import finished_results, points_table, time_of
from paceline.study.slurm_jobs import cancel_study
from paceline.study.study_point import Points, counts, to_run
from paceline.study.study_points import Study, require_study, study_points
from paceline.study.sweep import checked_study


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("study", metavar="STUDY", help="a file in experiments/")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--dry-run", action="store_true", help="show points and hours")
    only.add_argument("--prepare", action="store_true", help="find or download the data, no more")
    only.add_argument("--cancel", action="store_true", help="take its jobs out of Slurm's queue")
    parser.add_argument(
        "--from",
        dest="source",
        metavar="FILE",
        type=lambda text: Path(text).absolute(),  # before the root becomes the working directory
        help="an archive of records that another machine made, to take up first",
    )


def run(options: argparse.Namespace, root: Path) -> int:
    study, overrides, source = options.study, options.overrides, options.source
    require_study(study, root)
    if source is not None and (options.cancel or options.prepare):
        raise SettingError("--from", "it is for a sweep, or for --dry-run")
    if options.cancel:
        print(f"{study}: {cancel_study(study)} jobs cancelled")
        return 0
    with hydra_errors("study"):
        if options.prepare:
            prepare(study, root, overrides)
            return 0
        if options.dry_run:
            print_plan(checked_study(study, root, overrides, unpack=False, source=source))
            return 0
        if source is not None:
            checked_study(study, root, overrides, source=source, checks=False)  # the sweeper does
        return 0 if multirun([f"experiments={study}", *overrides], root).is_complete else 1


def print_plan(study: Study) -> None:
    """Print the points, the status of their records, and the time of a sweep."""
    trials, points = study.trials_of_points, study.points
    needed = to_run([*trials, *points])
    if trials:
        _print_points("tuning, run first: ", trials)
    _print_points("", points)
    if untuned := sum(not point.has_rate for point in points):
        print(f"{untuned} tuned points follow with rates, and so keys, by the tuning")
    if needed:
        results = finished_results(study.root / "runs", study.archived.values())
        print(time_of(needed, results) or "time: unknown until one point has run")


def _print_points(name: str, points: Points) -> None:
    """Print a table of points, and how many of them must run. `name`: words before the numbers."""
    print(points_table(points))
    print(f"{name}{counts(points)}; {len(to_run(points))} to run", flush=True)


def prepare(study: str, root: Path, overrides: Sequence[str] = ()) -> None:
    """Find or download every data set that `study` names, and print the name of each.

    A LightningDataModule of a user or of another package is prepared by the workers of a run.
    """
    from paceline.run.run_point import prepare_data  # torch takes seconds

    prepared: list[Target] = []
    for point in study_points(study, root, overrides):
        data = point.config.target("data")
        if data not in prepared:
            prepared.append(data)
            if prepare_data(data) is not None:
                print(f"{point.config.names['data']} is there", flush=True)
