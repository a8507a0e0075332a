"""Images/s, staleness and the busiest link of a modelled cluster, without training.

`paceline predict cluster=titan workload=googlenet workers=1,32,128`. --record KEY: the curve of a
record there; --study STUDY: its measured points; --published: published numbers.
"""

import argparse
import gc
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.errors import SettingError

if TYPE_CHECKING:  # torch takes seconds
    from paceline.prediction.predict import Prediction
    from paceline.record.point import Point

_CHOSEN = ("workload", "cluster", "scheme", "batch_size")  # said once, where they are all alike


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, default=100, help="of each worker")
    parser.add_argument("--json", metavar="FILE", help="write the predictions to a file")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--study", help="predict its measured points; no other arguments")
    record = "its curve on another modelled cluster, from runs/"
    instead.add_argument("--record", metavar="KEY", help=record)
    published = "published numbers; no other arguments"
    instead.add_argument("--published", action="store_true", help=published)


def run(options: argparse.Namespace, root: Path) -> int:
    instead = next((n for n in ("study", "record", "published") if getattr(options, n)), None)
    if instead and options.json:
        raise SettingError("json", f"it has no effect beside --{instead}; leave it out")
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
    if not (root / "papers/published.py").is_file():
        name = "study" if options.study else "published"
        raise SettingError(name, "papers/ is needed, which Paceline's repository alone has")
    if options.study:
        from papers.predict_points import predict_points

        return predict_points(options.study, root)
    from papers.published import write_published

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
    from paceline.command.terminal import require_folder, show_rows
    from paceline.prediction.network_by_size import in_precision, own_images
    from paceline.prediction.predict import check_links, predict
    from paceline.study.compose import composed_each

    require_folder("json", options.json)
    asked = composed_each(options.overrides, root, [own_images, in_precision])
    for each in asked:
        check_links(each.config)
    predictions = [predict(each.config, options.steps, each.swept) for each in asked]
    heading, rows = table(predictions)
    print(heading)
    show_rows(rows)
    print("\n".join(notes(predictions)))
    if options.json:
        Path(options.json).write_text(as_json(predictions))


def table(predictions: "Sequence[Prediction]") -> tuple[str, list[dict[str, str]]]:
    """Return a heading with what all predictions have in common, and the columns that differ."""
    rows = [cells(each) for each in predictions]
    alike = {name: rows[0][name] for name in _CHOSEN if len({row[name] for row in rows}) == 1}
    left_out = {*alike, *(name for name in ("staleness",) if all(row[name] == "-" for row in rows))}
    said = [alike[name] for name in _CHOSEN[:3] if name in alike]
    if "batch_size" in alike:
        said.append(f"{alike['batch_size']} images per worker and step")
    kept = [{name: text for name, text in row.items() if name not in left_out} for row in rows]
    return ", ".join(said), kept


def cells(prediction: "Prediction") -> dict[str, str]:
    """Return the row of a prediction in the table, by heading."""
    point, run = prediction.point, prediction.run
    name, share = run.busiest
    workload = point.config.names["workload"]  # a model may be named as its workload is
    ends = prediction.interval
    return {
        **_chosen(point),
        **{name: value for name, value in prediction.swept.items() if value != workload},
        "workers": f"{point.workers:,}",
        "batch_size": f"{point.batch_size:,}{'*' if prediction.extrapolated else ''}",
        "images/s": _rate(run.images_per_second),
        "interval": " to ".join(map(_rate, ends)) if ends else "-",
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
    from paceline.prediction.evidence import FACTOR, STEP_FACTOR
    from paceline.prediction.predict import StepFrom

    found = ["predicted: modelled time, nothing trained; batch_size: images of a worker and step"]
    found += dict.fromkeys(
        f"times: a step of {each.point.workload.name} {each.step_from}; messages by the links of "
        f"conf/cluster/{each.point.config.names['cluster']}.yaml"
        for each in predictions
    )
    if any(each.interval for each in predictions):
        found.append(
            f"interval: nine in ten predictions were off by at most a factor of {FACTOR}; its "
            "lower end has all that the profile assumes at its slowest, and one server of "
            "asynchronous pushes (checked with 1 to 8 workers)"
        )
    if any(each.interval and each.step_from is StepFrom.FLOPS for each in predictions):
        found[-1] += f", and nine in ten steps from FLOPs by {STEP_FACTOR} on an RTX 3090"
    found += dict.fromkeys(f"no interval: {each.lacks}" for each in predictions if each.lacks)
    if any(each.extrapolated for each in predictions):
        found.append(
            "*: outside of the batch sizes that were measured or published; a step from FLOPs "
            "takes at least what an H200's host took to launch the kernels of as many layers"
        )
    return found


def as_json(predictions: "Sequence[Prediction]") -> str:
    return json.dumps([_entry(each) for each in predictions], indent=2) + "\n"


def _entry(prediction: "Prediction") -> dict[str, object]:
    point = prediction.point
    return {
        "kind": "predicted",
        **_chosen(point),
        "settings": dict(prediction.swept),
        "workers": point.workers,
        "batch_size": point.batch_size,
        **vars(prediction.run),
        "interval": prediction.interval,
        "step_time": prediction.step_from,
        "extrapolated_batch_size": prediction.extrapolated,
        "rows": prediction.rows,
    }


def _chosen(point: "Point") -> dict[str, str]:
    return {group: point.config.names[group] for group in ("cluster", "workload", "scheme")}
