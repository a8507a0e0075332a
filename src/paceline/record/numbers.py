"""Declares each number of a point's record: its name, its unit, how it is observed, where it shows.

The table NUMBERS is the only place where a number is declared. The record, MLflow, runs.csv, and
the summary and the page of a study's report follow from it. The rooms `analysis` and `report`
import this file, so it must not import torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np

from paceline.record.rows import finite, phases

if TYPE_CHECKING:
    from paceline.record.observed import Observed

Value = float | int | str | list[dict[str, object]] | None
Unit = Literal["images/s", "1/s", "s", "share", "nats", "updates", "images", "bytes", "", "text"]
Section = Literal["Summary", "Loss, time, staleness"]


@dataclass(frozen=True)
class Shown:
    """Place of a number on the page: a column of the table `section` with the heading `label`.

    A cell shows the mean over the finished seeds of a configuration, with the interval of the mean.
    Columns are sorted by `place`. `each_point`: True if the table of all points also has this
    column. `beside_virtual`: True if only studies on the virtual clock, where time is modelled,
    have this column.
    """

    section: Section
    label: str
    place: int = 100
    each_point: bool = False
    beside_virtual: bool = False


@dataclass(frozen=True)
class Number:
    """Declaration of a number that every point has.

    `observe`: function that returns the number's value, or None if the number was not observed; by
    default, the value is the property of Observed with the name of the number. `unit`: determines
    the digits on the page; "" for a count, "text" for words. `shown`: place on the page; None for a
    number that is only recorded and logged. `of`: for a share of images, the name of the number
    that counts these images.
    """

    name: str
    unit: Unit
    observe: Callable[[Observed], Value] | None = None
    shown: Shown | None = None
    of: str = ""

    def of_run(self, observed: Observed) -> Value:
        return self.observe(observed) if self.observe else getattr(observed, self.name)


def _last_score(name: str) -> Callable[[Observed], Value]:
    return lambda o: o.last_score and finite(getattr(o.last_score, name))


def _test_score(name: str) -> Callable[[Observed], Value]:
    return lambda o: o.test and finite(getattr(o.test, name))


def _of_workers(name: str) -> Callable[[Observed], Value]:
    return lambda o: sum(getattr(worker, name) for worker in o.workers)


def _of_first(name: str) -> Callable[[Observed], Value]:
    return lambda o: getattr(o.first, name)


def _train_loss(o: Observed) -> Value:
    return o.last_score and finite(o.train_losses.get(o.last_score.samples))


def _staleness(reduce: Callable[[np.ndarray], float]) -> Callable[[Observed], Value]:
    """Return a function that applies `reduce` to the staleness of all applied pushes [updates].

    Without servers, the staleness is 0. The result is None if there are servers, but no push.
    """

    def observe(o: Observed) -> Value:
        pushes = o.staleness if o.servers else np.zeros(1, dtype=int)
        return reduce(pushes) if len(pushes) else None

    return observe


def _data_wait_share(o: Observed) -> Value:
    rows = phases(o)
    total = sum(r.seconds_data + r.seconds_compute + r.seconds_communicate for r in rows)
    return sum(row.seconds_data for row in rows) / total if total else None


def _most(name: str) -> Callable[[Observed], Value]:
    """Return a function that finds the largest value among all processes of a run."""
    return lambda o: max(getattr(each, name) for each in (*o.training, *o.shards, *o.servers))


_SUMMARY, _TIMES = get_args(Section)

NUMBERS = [  # listed in the order of result.json
    Number("global_batch_size", "images", _of_first("images_per_update")),
    Number("lr", "", _of_first("lr")),
    Number("momentum", "", _of_first("momentum")),
    Number("samples", "images"),
    Number("dropped_samples", "images", lambda o: len(o.dropped) * o.batch_size),
    Number("distinct_samples", "images"),
    Number("updates", "updates"),
    Number(
        "seconds", "s", shown=Shown(_TIMES, "seconds of the training clock", 2, each_point=True)
    ),
    Number("images_per_second", "images/s", shown=Shown(_SUMMARY, "images/s", 1, each_point=True)),
    Number("updates_per_second", "1/s", lambda o: o.updates / o.seconds if o.seconds else None),
    Number("real_seconds", "s", shown=Shown(_TIMES, "real seconds", 3, beside_virtual=True)),
    Number(
        "real_images_per_second",
        "images/s",
        shown=Shown(_TIMES, "real images/s", 4, beside_virtual=True),
    ),
    Number("late_steps", "", _of_workers("late_steps")),
    Number(
        "top1",
        "share",
        _last_score("top1"),
        Shown(_SUMMARY, "top-1, validation", 3, each_point=True),
        of="validation_images",
    ),
    Number("top5", "share", _last_score("top5")),
    Number("train_loss", "nats", _train_loss),
    Number("validation_loss", "nats", _last_score("loss"), Shown(_TIMES, "validation loss", 1)),
    Number(
        "test_top1",
        "share",
        _test_score("top1"),
        Shown(_SUMMARY, "top-1, test", 2, each_point=True),
        of="test_images",
    ),
    Number("averaged_top1", "share", _last_score("averaged_top1")),
    Number(
        "averaged_test_top1",
        "share",
        _test_score("averaged_top1"),
        Shown(_SUMMARY, "top-1, test, moving average", 5),
        of="test_images",
    ),
    Number("test_top5", "share", _test_score("top5")),
    Number("test_loss", "nats", _test_score("loss")),
    Number("validation_images", "images", _last_score("num_images")),
    Number("test_images", "images", _test_score("num_images")),
    Number(
        "staleness_mean",
        "updates",
        _staleness(lambda pushes: float(pushes.mean())),
        Shown(_TIMES, "staleness", 5, each_point=True),
    ),
    Number("staleness_max", "updates", _staleness(lambda pushes: int(pushes.max()))),
    Number("stale_share", "share", _staleness(lambda pushes: float((pushes > 0).mean()))),
    Number("data_wait_share", "share", _data_wait_share),
    Number("bytes_sent", "bytes", _of_workers("bytes_sent")),
    Number("bytes_received", "bytes", _of_workers("bytes_received")),
    Number("activation_bytes_sent", "bytes", _of_workers("activation_bytes_sent")),
    Number("shuffle_bytes", "bytes", lambda o: o.data_moved.shuffle_bytes),
    Number("shuffle_seconds", "s", lambda o: o.data_moved.shuffle_seconds),
    Number("data_digest", "text"),
    Number("optimizer", "text", _of_first("optimizer")),
    Number("scheduler", "text", _of_first("scheduler")),
    Number("num_parameters", "", _of_first("num_parameters")),
    Number("evaluated", "text", _of_first("evaluated")),
    Number("engine", "text", lambda o: o.first.strategy.engine),
    Number("certificate", "text", lambda o: o.certificate.words),
    Number("steps_spread", "", lambda o: int(np.ptp([worker.steps for worker in o.workers]))),
    Number("held_answers", "", lambda o: sum(server.held for server in o.servers)),
    Number("checkpoints", "", _of_first("checkpoints")),
    Number("resumes", "", _of_first("resumes")),
    Number("lost_workers", "text", lambda o: [asdict(lost) for lost in o.lost]),
    Number("peak_rss_bytes", "bytes", _most("peak_rss_bytes")),
    Number("stopped_seconds", "s", _most("stopped_seconds")),
]


def measured(observed: Observed) -> dict[str, Value]:
    """Return the value of each number, by name."""
    return {number.name: number.of_run(observed) for number in NUMBERS}


def unmeasured() -> dict[str, Value]:
    """Return None for each number, by name, as in the record of a failed point."""
    return dict.fromkeys(number.name for number in NUMBERS)


class Ending(NamedTuple):
    """Outcome of a run. `status` is finished, diverged, untrained or failed."""

    status: str
    reason: str


def result(observed: Observed) -> dict[str, Value]:
    """Return the observed part of `result.json`.

    It consists of how the run ended, the numbers of workers and servers, and all NUMBERS.
    """
    return {
        **ending(observed)._asdict(),
        "workers": observed.first.strategy.counted,
        "servers": len(observed.servers),
        **measured(observed),
    }


# Times the loss of a guess, of a network that gives all classes the same probability.
_FAR = 10
_NOT_BELOW = 0.999  # the loss of a network whose answer is always the same varies by less
_NEAR_ZERO = 0.1


def ending(observed: Observed) -> Ending:
    """Return how a run ended, and why.

    - diverged: weights or a loss are not finite, or the final validation loss is above _FAR times
      that of a guess;
    - untrained: the final loss is not below that of a guess, neither in training nor in validation;
    - failed: the certificate shows that the workers did not share updates as the scheme claims;
    - finished: all others. The reason names lost workers, and an accuracy that is not above chance.

    Where the accuracy is above chance, losses are not judged, since that of a user's module may
    have any scale.
    """
    last = observed.last_score
    if observed.diverged:
        return Ending("diverged", "weights are no longer finite")
    if observed.is_scored and (last is None or finite(last.loss) is None):
        return Ending("diverged", "the validation loss is not finite")
    train_loss = observed.train_losses.get(last.samples) if last else None
    if last and last.at_chance:
        sides = {"validation": last.loss, "training": train_loss}
        losses = {side: loss for side, loss in sides.items() if loss is not None}
        is_far = last.loss > _FAR * last.guess_loss or not all(map(math.isfinite, losses.values()))
        if is_far or min(losses.values()) >= _NOT_BELOW * last.guess_loss:
            words = " and ".join(f"{loss:.4g} in {side}" for side, loss in losses.items())
            guess = f"guessing among {last.num_classes} classes has {last.guess_loss:.4g}"
            return Ending(
                "diverged" if is_far else "untrained", f"the final loss is {words}; {guess}"
            )
    if not (observed.certificate.earned or observed.lost):
        return Ending("failed", observed.certificate.words)
    reasons = [
        f"worker {each.worker} was lost after {each.steps} steps: {each.reason}"
        for each in observed.lost
    ]
    if last and last.at_chance:
        reasons.append(f"its top-1, {last.top1:.3f}, is not above chance")
        if train_loss is not None and train_loss < _NEAR_ZERO * last.guess_loss:
            reasons[-1] += (
                f", but its training loss, {train_loss:.3f}, is near zero: they disagree, perhaps "
                "since forward returns something else than what the training steps score"
            )
    return Ending("finished", "; ".join(reasons))


def shown_numbers() -> list[tuple[Number, Shown]]:
    """Return the numbers that are averaged and shown, in their order on the page."""
    pairs = [(number, number.shown) for number in NUMBERS if number.shown]
    sections = get_args(Section)
    return sorted(pairs, key=lambda pair: (sections.index(pair[1].section), pair[1].place))
