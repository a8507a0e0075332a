"""Command `paceline predict`: times of a modelled cluster, without training."""

import argparse
import gc
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.command import Command
from paceline.errors import SettingError

if TYPE_CHECKING:  # torch takes seconds
    from paceline.prediction.predict import Prediction
    from paceline.record.point import Point


_SHOWN = 0.005  # a smaller share is 0 %


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, default=100, help="of each worker")
    draws = "of what the profile assumes, for the range of their images/s"
    parser.add_argument("--draws", type=int, default=0, help=draws)
    parser.add_argument("--json", metavar="FILE", help="write the predictions to a file")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--study", help="predict its measured points; no other arguments")
    record = "its curve on another modelled cluster, from runs/"
    instead.add_argument("--record", metavar="KEY", help=record)
    published = "published numbers; no other arguments"
    instead.add_argument("--published", action="store_true", help=published)


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
    """Write the predictions for a study or for published numbers to a file; return its path."""
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
    from paceline.command.terminal import show_rows
    from paceline.prediction.retime import retime

    rows = [
        {
            ">samples": f"{each.samples:,}",
            ">top-1": f"{100 * each.top1:.2f} %",
            ">before [s]": f"{each.before:,.4f}",
            ">retimed [s]": f"{each.seconds:,.4f}",
        }
        for each in retime(options.record, options.overrides, root)
    ]
    show_rows(rows)
    print("retimed virtual: the record's weights, modelled times")


def _print_predictions(options: argparse.Namespace, root: Path) -> None:
    from paceline.command.terminal import show_rows
    from paceline.prediction.predict import predict
    from paceline.study.compose import composed_each

    if options.json and not Path(options.json).parent.is_dir():
        raise SettingError("json", f"there is no folder {Path(options.json).parent}")
    predictions = [
        predict(each.config, options.steps, each.swept, options.draws)
        for each in composed_each(options.overrides, root)
    ]
    show_rows([cells(each) for each in predictions])
    print("\n".join(notes(predictions)))
    if options.json:
        Path(options.json).write_text(as_json(predictions))


def cells(prediction: "Prediction") -> dict[str, str]:
    """Return the row of a prediction in the table, by heading."""
    point, run = prediction.point, prediction.run
    name, share = run.busiest
    ends = {"interval": prediction.interval}
    ends |= {"90 % of draws": prediction.drawn} if prediction.drawn else {}
    return {
        **_chosen(point),
        **prediction.swept,
        "workers": f"{point.workers:,}",
        "batch_size": f"{point.batch_size:,}{'*' if prediction.extrapolated else ''}",
        "images/s": _rate(run.images_per_second),
        **{name: " to ".join(map(_rate, own)) if own else "-" for name, own in ends.items()},
        "computing": f"{100 * run.computing:.0f} %",
        "exchanging": f"{100 * run.exchanging:.0f} %",
        "waiting": f"{100 * run.waiting:.0f} %",
        "staleness": f"{run.mean_staleness:.2f}" if run.staleness else "-",
        "busiest": f"{name} {100 * share:.0f} %",
    }


def _rate(images_per_second: float) -> str:
    return f"{images_per_second:,.{0 if images_per_second >= 100 else 1}f}"


def notes(predictions: "Sequence[Prediction]") -> list[str]:
    """Return the lines below the table."""
    from paceline.prediction.prediction_interval import FACTOR

    found = ["predicted: modelled time, nothing trained; batch_size: images of a worker and step"]
    jitters = {each.cluster.step_jitter for each in predictions if each.run.waiting >= _SHOWN}
    if named := ", ".join(f"{jitter:g}" for jitter in sorted(jitters) if jitter):
        found.append(
            "waiting: also for workers whose step takes longer, since steps are assumed to vary "
            f"by cluster.step_jitter={named}; cluster.step_jitter=0 leaves that out"
        )
    if any(each.interval for each in predictions):
        found.append(
            f"interval: predictions of four experiments were off by a factor of at most {FACTOR}, "
            "which are too few to promise a share"
        )
    for lacks in dict.fromkeys(each.lacks for each in predictions if each.lacks):
        found.append(f"no interval: {lacks}; the model lacks that")
    if any(each.extrapolated for each in predictions):
        found.append("*: outside of the batch sizes that were measured or published")
    return found


def as_json(predictions: "Sequence[Prediction]") -> str:
    return json.dumps([_entry(each) for each in predictions], indent=2) + "\n"


def _entry(prediction: "Prediction") -> dict[str, object]:
    point, run = prediction.point, prediction.run
    return {
        "kind": "predicted",
        **_chosen(point),
        "settings": dict(prediction.swept),
        "workers": point.workers,
        "batch_size": point.batch_size,
        "images_per_second": run.images_per_second,
        "images_per_second_interval": prediction.interval and list(prediction.interval),
        "images_per_second_drawn": prediction.drawn and list(prediction.drawn),
        "share_computing": run.computing,
        "share_exchanging": run.exchanging,
        "share_waiting": run.waiting,
        "pushes_by_staleness": {str(key): n for key, n in sorted(run.staleness.items())},
        "busiest": run.busiest[0],
        "share_busiest": run.busiest[1],
        "extrapolated_batch_size": prediction.extrapolated,
        "rows": prediction.rows,
    }


def _chosen(point: "Point") -> dict[str, str]:
    return {group: point.config.names[group] for group in ("cluster", "workload", "scheme")}


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
