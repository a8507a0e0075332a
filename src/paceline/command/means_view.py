"""The means over seeds with which a multirun ends."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from paceline.analysis.intervals import POINTS, POSITIVE, Interval, interval
from paceline.command.terminal import plain_table
from paceline.grouped import grouped
from paceline.record.result import Result
from paceline.report.number_format import decimals, percent, times
from paceline.study.study_point import Points


def means_view(points: Points) -> Iterator[RenderableType]:
    """Yield a table with a row for each configuration, and the command of their page.

    A row has the settings that differ, without the seed; n, the number of its points that finished;
    and of these the means of top-1, on test images, and of images/s, with half of the width of
    their 95 % intervals.
    """
    names = dict.fromkeys(name for point in points for name in point.axes if name != "seed")
    alike = grouped(points, lambda point: tuple(str(point.axes.get(name, "")) for name in names))
    rows = ([*axes, *_means(of)] for axes, of in alike.items())
    yield plain_table([*names, ">n", ">top-1, test", ">images/s", "kind"], rows)
    yield f"next: paceline report {points[0].config.study}"


def _means(points: Points) -> list[str]:
    results = [point.result for point in points if point.result and point.status == "finished"]
    scores = interval(_numbers(results, "test_top1"), POINTS)
    speeds = interval(_numbers(results, "images_per_second"), POSITIVE)
    n = str(len(results)) if len(results) == len(points) else f"{len(results)} of {len(points)}"
    top1 = percent(scores.mean, 2) + _half(scores, 100) if scores.n else ""
    speed = times(speeds.mean) + _half(speeds, 1) if speeds.n else ""
    return [n, top1, speed, " ".join(dict.fromkeys(each["kind"] for each in results))]


def _numbers(results: Sequence[Result], name: str) -> list[float]:
    return [each[name] for each in results if each.get(name)]


def _half(of: Interval, unit: float) -> str:
    half = unit * (of.high - of.low) / 2
    return f" ± {decimals(half) if unit > 1 else times(half)}" if of.n > 1 else ""
