"""The means over seeds with which a multirun ends."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from paceline.analysis.intervals import POINTS, POSITIVE, interval
from paceline.command.terminal import plain_table
from paceline.grouped import grouped
from paceline.record.result import Result
from paceline.report.number_format import count, percent, with_interval
from paceline.study.study_point import Points


def means_view(points: Points) -> Iterator[RenderableType]:
    """Yield a table with a row for each configuration, and the command of their page.

    A row has the settings that differ, without the seed; of the points that finished the means of
    top-1, on test images, and of images/s, with their 95 % intervals and n; and how many finished.
    """
    names = dict.fromkeys(name for point in points for name in point.axes if name != "seed")
    alike = grouped(points, lambda point: tuple(str(point.axes.get(name, "")) for name in names))
    rows = ([*axes, *_means(of)] for axes, of in alike.items())
    yield plain_table([*names, ">top-1, test", ">images/s", "finished"], rows)
    yield f"next: paceline report {points[0].config.study}"


def _means(points: Points) -> list[str]:
    results = [point.result for point in points if point.result and point.status == "finished"]
    scores = interval(_numbers(results, "test_top1"), POINTS).named("top1")
    speeds = interval(_numbers(results, "images_per_second"), POSITIVE).named("rate")
    kinds = dict.fromkeys(each["kind"] for each in results)
    finished = " ".join([f"{len(results)} of {len(points)}", *kinds])
    top1 = with_interval(scores, "top1", lambda share: percent(share, 2))
    return [top1, with_interval(speeds, "rate", count), finished]


def _numbers(results: Sequence[Result], name: str) -> list[float]:
    return [each[name] for each in results if each.get(name) is not None]
