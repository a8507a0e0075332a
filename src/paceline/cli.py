"""Command line. Each command imports its rooms when it runs: torch alone costs seconds."""

import argparse
import gc
import os
import sys
from pathlib import Path

from paceline.errors import SettingError

_HELP = """\
What happens to accuracy and throughput as SGD is spread over workers.

  train      one run: `paceline train scheme=async_parameter_server workers=2 seed=1`;
             Hydra's whole command line: --help, --cfg job, --multirun
  calibrate  measure this machine -> conf/cluster/this_machine.yaml, for `cluster=this_machine`, or
             NAME.yaml with --write NAME;
             settings as in train choose what it computes: model=resnet18 batch_size=64
  count      weights, multiply-adds and activations of a network, layer by layer:
             `paceline count model=nin data=image_folder batch_size=1024`; --write NAME makes
             conf/workload/NAME.yaml of it, for `workload=NAME` on a modelled cluster
  predict    images/s, staleness and the busiest link of a modelled cluster, without training:
             `paceline predict cluster=titan workload=googlenet workers=1,32,128`; --json FILE;
             --study STUDY predicts its measured points -> reports/<study>/predictions.csv
  retime     the curve of a record on another modelled cluster, where times change no update:
             `paceline retime 656d4840fa49 cluster=titan workload=nin`
  published  predictions of published numbers -> reports/predictions, by papers/predictions.yaml
  prepare    find or download, and verify, the data of a study
  sweep      run the points of a study that have no record yet; --dry-run shows them
  collect    records of a study -> reports/<study>/runs.csv, curves.csv, ...
  analyse    those tables -> tables/summary.csv, tables/scaling.csv, ...
  report     those tables -> index.html, README.md, figures
"""


_WITHOUT_STUDY = ("calibrate", "count", "predict", "published", "retime")
_TAKES_SETTINGS = ("calibrate", "count", "predict", "retime", "prepare", "sweep", "collect")


def main() -> None:
    """Run a command and exit: 0; 1 a recorded point failed; 2 a wrong setting; 130 interrupted."""
    try:
        sys.exit(_run(sys.argv[1:]))
    except SettingError as error:
        print(f"paceline: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("paceline: interrupted; finished points are kept", file=sys.stderr)
        sys.exit(130)


def find_root(start: Path) -> Path:
    """Return the folder that contains conf/: `start` or its nearest parent.

    Raises SettingError("conf") if there is none.
    """
    for folder in (start, *start.parents):
        if (folder / "conf" / "config.yaml").is_file():
            return folder
    message = f"no conf/config.yaml in {start} or a folder above it; run paceline in its repository"
    raise SettingError("conf", message)


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["train"]:
        return _train(arguments[1:])
    options = _parse(arguments)
    root = _enter_root()
    return {
        "calibrate": _calibrate,
        "count": _count,
        "predict": _predict,
        "published": _published,
        "retime": _retime,
        "prepare": _prepare,
        "sweep": _sweep,
        "collect": _collect,
        "analyse": _analyse,
        "report": _report,
    }[options.command](options, root)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="paceline",
        description=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("train", add_help=False)
    for name in (*_WITHOUT_STUDY, "prepare", "sweep", "collect", "analyse", "report"):
        command = commands.add_parser(name)
        if name not in _WITHOUT_STUDY:
            command.add_argument("study", metavar="STUDY", help="a file in experiments/")
        if name == "sweep":
            command.add_argument(
                "--dry-run", action="store_true", help="show points, hours, memory"
            )
        if name == "calibrate":
            default = "this_machine"
            command.add_argument(
                "--write", metavar="NAME", default=default, help="write conf/cluster/NAME.yaml"
            )
        if name == "count":
            command.add_argument("--write", metavar="NAME", help="write conf/workload/NAME.yaml")
        if name == "retime":
            command.add_argument("key", metavar="KEY", help="of a record in runs/")
        if name == "predict":
            command.add_argument("--steps", type=int, default=100, help="of each worker")
            command.add_argument(
                "--draws", type=int, default=0, help="of what the profile assumes, for an interval"
            )
            command.add_argument("--json", metavar="FILE", help="write the predictions to a file")
            command.add_argument("--study", help="predict its measured points; no other arguments")
        if name in _TAKES_SETTINGS:
            command.epilog = "Settings may follow, as in `paceline train`: seed=0,1"
    return parser


def _parse(arguments: list[str]) -> argparse.Namespace:
    """Parse a command line; `overrides` are its settings, before or behind options."""
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    unknown = [
        word for word in rest if word.startswith("-") or options.command not in _TAKES_SETTINGS
    ]
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    options.overrides = rest
    return options


def _enter_root() -> Path:
    """Change to the repository's root, to which paths in settings are relative."""
    root = find_root(Path.cwd())
    os.chdir(root)
    return root


def _train(arguments: list[str]) -> int:
    root = _enter_root()
    from paceline.study.hydra_entry import run_hydra
    from paceline.study.hydra_error import hydra_errors

    with hydra_errors("train"):
        run_hydra(arguments, root)
    return 0


def _calibrate(options: argparse.Namespace, root: Path) -> int:
    """Measure this machine, which must be otherwise idle; takes four minutes."""
    from paceline.cluster.launcher import preload
    from paceline.cluster.supervisor import ProcessFailure
    from paceline.study.compose import composed

    config = composed(options.overrides, root)
    preload()  # of torch and Lightning in the background, while they are imported here
    from paceline.calibration.cluster_file import path_of, write
    from paceline.calibration.measure import measure
    from paceline.calibration.this_machine import table
    from paceline.record.point import Point

    path = path_of(root / "conf/cluster", options.write)
    try:
        measured = measure(config)
    except ProcessFailure as failure:
        print(f"paceline: {failure}", file=sys.stderr)
        return 1
    print(table(measured))
    write(measured, Point.of(config), path)
    print(path.relative_to(root))
    return 0


def _count(options: argparse.Namespace, root: Path) -> int:
    from paceline.calibration.workload_file import count, table, write
    from paceline.study.compose import composed

    config = composed(options.overrides, root)
    size = count(config)
    print(table(size, config.values["batch_size"]))
    if options.write:
        command = " ".join(["count", *options.overrides, "--write", options.write])
        path = write(config, size, options.write, command, root / "conf/workload")
        print(path.relative_to(root))
    return 0


def _predict(options: argparse.Namespace, root: Path) -> int:
    from paceline.prediction.predict import as_json, predict, table
    from paceline.prediction.predict_points import predict_points
    from paceline.study.compose import composed_each

    gc.collect()
    gc.freeze()  # else each collection visits all that was imported: a sixth of the time
    if options.study:
        if options.overrides:
            raise SettingError("study", f"its points have settings: {' '.join(options.overrides)}")
        print(predict_points(options.study, root).relative_to(root))
        return 0
    if options.json and not Path(options.json).parent.is_dir():
        raise SettingError("json", f"there is no folder {Path(options.json).parent}")
    predictions = [
        predict(each.config, options.steps, each.swept, options.draws)
        for each in composed_each(options.overrides, root)
    ]
    print(table(predictions))
    if options.json:
        Path(options.json).write_text(as_json(predictions))
    return 0


def _retime(options: argparse.Namespace, root: Path) -> int:
    from paceline.prediction.retime import retime, table

    print(table(retime(options.key, options.overrides, root)))
    return 0


def _published(options: argparse.Namespace, root: Path) -> int:
    from paceline.prediction.published_report import write

    print(write(root).relative_to(root))
    return 0


def _prepare(options: argparse.Namespace, root: Path) -> int:
    from paceline.study.prepare import prepare

    print(prepare(options.study, root, options.overrides))
    return 0


def _sweep(options: argparse.Namespace, root: Path) -> int:
    from paceline.study.hydra_entry import multirun
    from paceline.study.hydra_error import hydra_errors
    from paceline.study.sweep import sweep

    with hydra_errors("study"):
        complete = sweep(options.study, root, multirun, options.overrides, dry_run=options.dry_run)
    return 0 if complete else 1


def _collect(options: argparse.Namespace, root: Path) -> int:
    from paceline.study.collect import collect

    collect(options.study, root, options.overrides)
    return 0


def _analyse(options: argparse.Namespace, root: Path) -> int:
    from paceline.analysis.analyse import analyse

    analyse(root / "reports" / options.study)
    return 0


def _report(options: argparse.Namespace, root: Path) -> int:
    from paceline.report.page import report

    print(report(root / "reports" / options.study))
    return 0


if __name__ == "__main__":
    main()
