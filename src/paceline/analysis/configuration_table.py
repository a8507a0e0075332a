"""Makes the table `configurations`: a row for each configuration, with all that is concluded of it.

Its columns are declared here once, in the parts of the table that answer one question each.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from paceline.analysis.comparison import block_ratio, comparison, fault
from paceline.analysis.configuration import RowOf, configurations, counts
from paceline.analysis.equal_time import equal_time
from paceline.analysis.frames import Frame
from paceline.analysis.intervals import Interval, interval, not_negative
from paceline.analysis.phase_shares import phase_shares, staleness_spread
from paceline.analysis.predicted import EXCHANGE_NEAR, SIZE, predicted, predicted_exchange
from paceline.analysis.scaling import scaling
from paceline.analysis.statistics.space import POINTS, logit_of, variance_of_logit
from paceline.analysis.tables import Tables
from paceline.analysis.time_to_target import time_to_target
from paceline.measurement.numbers import Number, Unit, shown_numbers

NAME = "configurations"
_ENDS = ("mean", "low", "high", "n")


@dataclass(frozen=True)
class Column:
    """Declaration of a column; `unit` decides its number format, `meaning` says what it is.

    A `ratio` is a factor, `points` are a difference of shares, "" is a count. With `is_mean` there
    are four columns: <name>_mean, <name>_low and <name>_high, the ends of its 95 % interval, and
    <name>_n, the number of observations. The ends are empty if that is less than 2.
    """

    name: str
    unit: Unit | Literal["ratio", "points"]
    meaning: str
    is_mean: bool = False

    @property
    def names(self) -> list[str]:
        """Names of the columns in the table."""
        return [f"{self.name}_{end}" for end in _ENDS] if self.is_mean else [self.name]


@dataclass(frozen=True)
class Part:
    """Columns of the table that answer one question, empty where it does not arise.

    `make` returns, for a study, the function that fills them for a configuration. A view of the
    part alone leaves `prefix` out of the names, and has the columns `also` of the whole table. It
    has the rows that an answer is known of: in which the first column, or its n, is not empty.
    `caption` is a sentence under which the page shows the view as it is; without one, the report
    has a layout of its own.
    """

    name: str
    make: Callable[[Tables], RowOf]
    columns: Sequence[Column]
    prefix: str = ""
    also: Sequence[str] = ()
    caption: str = ""

    def view(self, table: Frame, identity: Sequence[str]) -> Frame:
        """Return the rows of the table that have this part, and its columns."""
        names = [name for column in self.columns for name in column.names]
        known = table.reindex(columns=[*identity, *self.also, *names])
        first = known[self.columns[0].names[-1]]
        known = known[first.notna() & (first != "")]
        cells: dict[str, Frame] = {}  # that rows of other parts, which lack them, gave another type
        for column in self.columns:
            if column.unit == "text":
                cells[column.name] = known[column.name].astype(object).fillna("")
            elif column.is_mean or column.unit == "":
                counted = column.names[-1]
                cells[counted] = known[counted].astype(int)
        return known.assign(**cells).rename(columns=lambda name: name.removeprefix(self.prefix))


def _mean(name: str, unit: Unit | Literal["ratio", "points"], meaning: str) -> Column:
    return Column(name, unit, meaning, is_mean=True)


PARTS = [
    Part(
        "scaling",
        scaling,
        [
            Column("baseline", "text", "the one-worker points, or why there are none"),
            Column("baseline_scheme", "text", "their scheme"),
            Column("n_unpaired", "", "finished points without a baseline of equal seed"),
            _mean("speedup", "ratio", "images/s over those of the baseline, paired by seed"),
            _mean("efficiency", "share", "speed-up over the number of processes"),
        ],
    ),
    Part(
        "equal_accuracy",
        scaling,
        [
            Column("baseline_verdict", "text", "equal, different or not shown, by the margin"),
            Column("baseline_metric", "text", "test_top1, or top1 if no seed has that"),
            Column("baseline_margin", "share", "difference up to which the study says equal"),
            _mean("baseline_top1_difference", "points", "top-1 less that of the baseline"),
        ],
        prefix="baseline_",
    ),
    Part(
        "comparison",
        comparison,
        [
            Column("reference", "text", "the scheme that all others are compared with"),
            _mean("reference_speed_ratio", "ratio", "images/s over those of the reference"),
            _mean("reference_top1_difference", "points", "validation top-1 less the reference's"),
            _mean("reference_test_top1_difference", "points", "test top-1 less the reference's"),
        ],
        prefix="reference_",
    ),
    Part(
        "equal_time",
        equal_time,
        [
            _mean("top1_equal_samples", "share", "validation top-1 at the run's last evaluation"),
            Column("common_seconds", "s", "of the first finished run with as many workers"),
            _mean("top1_equal_time", "share", "validation top-1 when these seconds are spent"),
            Column("common_updates", "updates", "the fewest of a finished run, likewise"),
            _mean("top1_equal_updates", "share", "validation top-1 after these updates"),
        ],
    ),
    Part(
        "time_to_target",
        time_to_target,
        [
            Column("target", "share", "of the study's metric of validation; a loss is in nats"),
            Column("target_set_by", "text", "the study, or the best configuration of one worker"),
            Column("target_n_reached", "", "runs that reached it"),
            Column("target_n_censored", "", "runs that finished or diverged without reaching it"),
            _mean("target_seconds", "s", "until it was reached; only if all runs reached it"),
            Column("target_seconds_median", "s", "a run that did not counts as later than any"),
            _mean("target_samples", "images", "likewise"),
            Column("target_samples_median", "images", "likewise"),
        ],
        prefix="target_",
        also=("n", "n_failed"),
    ),
    Part(
        "phase_shares",
        phase_shares,
        [
            Column("phase_compute", "share", "of the seconds of all workers: computing"),
            Column("phase_exchange", "share", "exchanging, and waiting for others"),
            Column("phase_loading", "share", "waiting for samples"),
            Column("phase_compute_seconds", "s", "of the mean worker"),
            Column("phase_exchange_seconds", "s", "of the mean worker"),
            Column("phase_loading_seconds", "s", "of the mean worker"),
        ],
        prefix="phase_",
    ),
    Part(
        "staleness_spread",
        staleness_spread,
        [
            Column("pushes", "", "that servers applied, of all finished seeds"),
            Column("pushes_mean", "updates", "mean staleness of a push"),
            Column("pushes_low", "updates", "the 5 % quantile of it"),
            Column("pushes_median", "updates", "its median"),
            Column("pushes_high", "updates", "the 95 % quantile of it"),
        ],
        prefix="pushes_",
    ),
    Part(
        "faults",
        fault,
        [
            _mean("fault_seconds_ratio", "ratio", "seconds over those without the fault"),
            _mean("fault_test_top1_difference", "points", "test top-1 less that without the fault"),
            Column("fault_seconds_to_end", "s", "longest from the fault to a failed run's end"),
            Column("fault_images_lost", "images", "mean number whose gradients are in no weights"),
            Column("fault_reason", "text", "what a run says about its end"),
        ],
        prefix="fault_",
        also=("n", "n_finished"),
    ),
    Part(
        "block_ratios",
        block_ratio,
        [_mean("block_ratio", "ratio", "images/s over the references of the same block")],
        prefix="block_",
        caption="Images/s over the mean of the two reference runs in the same block: geometric "
        "means over the blocks that are kept, with 95 % t-intervals of logarithms. What a block "
        "shares, such as its minutes, cancels.",
    ),
    Part(
        "predicted",
        predicted,
        [
            Column("rate_n", "", "seeds"),
            Column("rate_half", "text", "validation or development, if the study has both"),
            Column("rate_observed", "images/s", "harmonic mean over the seeds, as of one long run"),
            Column("rate_least", "images/s", "of a seed"),
            Column("rate_most", "images/s", "of a seed"),
            Column("rate_predicted", "images/s", "harmonic mean of what is predicted"),
            Column("rate_error", "ratio", "of the prediction, relative"),
            Column("rate_verdict", "text", "near, far, or calibrated: it went into the prediction"),
        ],
        prefix="rate_",
    ),
    Part(
        "predicted_exchange",
        predicted_exchange,
        [
            Column("exchange_n", "", "seeds"),
            Column("exchange_half", "text", "validation or development, if the study has both"),
            Column("exchange_observed", "s", "that messages and servers add to a step"),
            Column("exchange_predicted", "s", "likewise, predicted"),
            Column("exchange_error", "ratio", "of the prediction, relative"),
            Column("exchange_verdict", "text", "near or far"),
            Column("exchange_staleness_distance", "share", "total variation of the distributions"),
            Column("exchange_staleness_p", "share", "least p of a seed, times their number"),
            Column("exchange_staleness_verdict", "text", "alike, or apart"),
        ],
        prefix="exchange_",
        caption="Exchange: seconds that messages and servers add to a step of paced processes, "
        f"over the same steps with free messages; near within {100 * EXCHANGE_NEAR:.0f} %. "
        "Staleness: total variation between the distributions of pushes to the first server; p of "
        "a Monte Carlo test against predicted runs with other draws of step times, of size "
        f"{100 * SIZE:.0f} %.",
    ),
]


VIEWS = ("summary", *(part.name for part in PARTS))


def configuration_table(tables: Tables) -> Frame:
    """Return one row per configuration, with the columns of `identity` that name it.

    `n` counts its points, `n_finished`, `n_diverged` and `n_failed` those of each status. The means
    of all shown numbers (`measurement.numbers`) over finished seeds follow, and the columns of
    PARTS. The n of a number leaves out points without it; a number that no record of the study
    contains has no columns. Means of what is above 0 are geometric; those of accuracies are of
    their logits, and their intervals contain the draw of the scored images.
    """
    numbers = [number for number, _ in shown_numbers() if number.name in tables.runs]
    makers = [make(tables) for make in dict.fromkeys(part.make for part in PARTS)]
    rows = []
    for configuration, points in configurations(tables.runs, identity(tables)[1:]):
        row = configuration | {"n": len(points)} | counts(points)
        finished = points[points["status"] == "finished"]
        for number in numbers:
            row |= mean(number, finished).named(number.name)
        for make in makers:
            row |= make(configuration, points)
        rows.append(row)
    return pd.DataFrame(rows)


def identity(tables: Tables) -> list[str]:
    """Return the columns that identify a configuration: kind, data set and axes."""
    return list(dict.fromkeys(["kind", "data", *tables.axes]))


def views(table: Frame, tables: Tables) -> Mapping[str, Frame]:
    """Return the view of each part of `configuration_table`, by name; "summary" is all of it."""
    parts = (part.view(table, identity(tables)) for part in PARTS)
    return dict(zip(VIEWS, (table, *parts), strict=True))


def mean(number: Number, points: Frame) -> Interval:
    """Return the mean of a number over points, with an interval that does not leave its range."""
    values = points[number.name].dropna().astype(float)
    images = points[number.of].dropna() if number.of in points else []
    if len(values) and len(images):
        least = int(min(images))
        return interval(values, logit_of(least), float(variance_of_logit(values.mean(), least)))
    if number.unit == "share":
        return interval(values, POINTS)  # of records that do not say how many images were scored
    return interval(values, not_negative(values))
