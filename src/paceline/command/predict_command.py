"""Command `paceline predict`: times of a modelled cluster, without training."""

import argparse
import gc
from pathlib import Path

from paceline.command.command import Command
from paceline.errors import SettingError


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, default=100, help="of each worker")
    parser.add_argument(
        "--draws", type=int, default=0, help="of what the profile assumes, for an interval"
    )
    parser.add_argument("--json", metavar="FILE", help="write the predictions to a file")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--study", help="predict its measured points; no other arguments")
    instead.add_argument(
        "--record", metavar="KEY", help="its curve on another modelled cluster, from runs/"
    )
    instead.add_argument(
        "--published", action="store_true", help="published numbers; no other arguments"
    )


def _run(options: argparse.Namespace, root: Path) -> int:
    instead = next((n for n in ("study", "record", "published") if getattr(options, n)), None)
    for name in ("draws", "json"):
        if instead and getattr(options, name):
            raise SettingError(name, f"it has no effect beside --{instead}; leave it out")
    gc.collect()
    gc.freeze()  # else each collection visits all that was imported: a sixth of the time
    if options.study or options.published:
        print(_write(options, root).relative_to(root))
    elif options.record:
        _print_retimed(options, root)
    else:
        _print_predictions(options, root)
    return 0


def _write(options: argparse.Namespace, root: Path) -> Path:
    """Write the predictions of a study, or of published numbers; return the path."""
    if options.overrides:
        name = "study" if options.study else "published"
        settings = " ".join(options.overrides)
        raise SettingError(name, f"its points have their own settings; leave {settings} out")
    if options.study:
        from paceline.prediction.predict_points import predict_points

        return predict_points(options.study, root)
    from paceline.prediction.published import write_published

    return write_published(root)


def _print_retimed(options: argparse.Namespace, root: Path) -> None:
    from paceline.command.plain_table import print_table
    from paceline.prediction.retime import cells, retime

    print_table([cells(each) for each in retime(options.record, options.overrides, root)])
    print("retimed virtual: the record's weights, modelled times")


def _print_predictions(options: argparse.Namespace, root: Path) -> None:
    from paceline.command.plain_table import print_table
    from paceline.prediction.predict import as_json, cells, notes, predict
    from paceline.study.compose import composed_each

    if options.json and not Path(options.json).parent.is_dir():
        raise SettingError("json", f"there is no folder {Path(options.json).parent}")
    predictions = [
        predict(each.config, options.steps, each.swept, options.draws)
        for each in composed_each(options.overrides, root)
    ]
    print_table([cells(each) for each in predictions])
    print("\n".join(notes(predictions)))
    if options.json:
        Path(options.json).write_text(as_json(predictions))


COMMAND = Command(
    help="""\
images/s, staleness and the busiest link of a modelled cluster, without training:
`paceline predict cluster=titan workload=googlenet workers=1,32,128`; --json FILE;
--record KEY: the curve of a record there; --study STUDY: its measured points;
--published: published numbers""",
    run=_run,
    settings=True,
    add_arguments=_add_arguments,
)
