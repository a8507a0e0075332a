"""Declares result.json: its fields, and of each number how it is observed and where it shows.

The class `ResultFields` is the only place where a number is declared. The record and its check,
MLflow, runs.csv, and the summary and the page of a study's report follow from it. The rooms
`analysis` and `report` import this file, so it must not import torch.
"""
# ruff: noqa: RUF009 (`number` returns dataclasses.field)

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_type_hints

import numpy as np
from pydantic import AfterValidator, BaseModel, Field

from paceline.record.fields import (
    Bytes,
    Count,
    Finite,
    Images,
    Lines,
    Nats,
    Plain,
    Rate,
    Seconds,
    Share,
    Text,
    Unit,
    Updates,
    Whole,
    fault_of_fields,
)
from paceline.record.rows import finite, phases

if TYPE_CHECKING:
    from paceline.record.observed import Observed

Result = Mapping[str, Any]  # content of result.json
Value = float | int | str | list[dict[str, object]] | None
Section = Literal["Summary", "Loss, time, staleness"]
_SUMMARY, _TIMES = get_args(Section)
# Times the loss of a guess, of a network that gives all classes the same probability.
_FAR = 10
_NOT_BELOW = 0.999  # the loss of a network whose answer is always the same varies by less
_NEAR_ZERO = 0.1

_Observe = Callable[["Observed"], Value]
_Key = Annotated[str, Field(pattern="^[0-9a-f]{12}$")]
_Name = Annotated[str, Field(pattern=r"^[\w./-]{1,99}$")]  # of a file of conf/


@dataclass(frozen=True)
class Number:
    """Declaration of a number that every point has.

    `unit`: determines the digits on the page; "" for a count, "text" for words. `observe`: function
    that returns the number's value, or None if the number was not observed; by default, the value
    is the property of Observed with the name of the number. `of`: for a share of images, the name
    of the number that counts these images.

    `heading`: of its column on the page, in the table `section`, whose columns are sorted by
    `place`; "" for a number that is only recorded and logged. A cell shows the mean over the
    finished seeds of a configuration, with the interval of the mean. `beside_virtual`: True
    if only studies on the virtual clock, where time is modelled, have this column.
    """

    name: str
    unit: Unit
    observe: _Observe | None = None
    heading: str = ""
    section: Section = _SUMMARY
    place: int = 100
    beside_virtual: bool = False
    of: str = ""

    def of_run(self, observed: "Observed") -> Value:
        return self.observe(observed) if self.observe else getattr(observed, self.name)


def number(observe: _Observe | None = None, heading: str = "", **shown: Any) -> Any:
    """Declare a field as a number; `Number` explains the arguments."""
    return field(default=None, metadata={"observe": observe, "heading": heading, **shown})


def _score(part: str, name: str) -> _Observe:
    """Return a function that reads a number of the score "last_score" or "test"."""
    return lambda o: (score := getattr(o, part)) and finite(getattr(score, name))


def _of_workers(name: str) -> _Observe:
    return lambda o: sum(getattr(worker, name) for worker in o.workers)


def _train_loss(o: "Observed") -> Value:
    return o.last_score and finite(o.train_losses.get(o.last_score.samples))


def _staleness(reduce: Callable[[np.ndarray], float]) -> _Observe:
    """Return a function that applies `reduce` to the staleness of all applied pushes [updates].

    Without servers, the staleness is 0. The result is None if there are servers, but no push.
    """

    def observe(o: "Observed") -> Value:
        pushes = o.staleness if o.servers else np.zeros(1, dtype=int)
        return reduce(pushes) if len(pushes) else None

    return observe


def _data_wait_share(o: "Observed") -> Value:
    rows = phases(o)
    total = sum(r.seconds_data + r.seconds_compute + r.seconds_communicate for r in rows)
    return sum(row.seconds_data for row in rows) / total if total else None


def _most(name: str) -> _Observe:
    """Return a function that finds the largest value among all processes of a run."""
    return lambda o: max(getattr(each, name) for each in (*o.training, *o.shards, *o.servers))


class _Hardware(BaseModel):
    cpu: str
    cores: Whole
    memory_bytes: Count | None = None
    gpus: list[str]


def _with_zone(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("it has no time zone")
    return text


# Numbers without which no record can be compared with others; a failed run may have none of them.
_NEEDED = ("samples", "seconds", "dropped_samples", "late_steps", "num_parameters")


@dataclass(frozen=True, kw_only=True)
class ResultFields:
    """Fields of result.json, and the numbers among them in the order of the file.

    Records of earlier code may lack any field that may be None, except those of _NEEDED, and may
    have others.
    """

    status: Literal["finished", "diverged", "untrained", "failed"]
    reason: str
    kind: Literal["measured", "paced", "virtual"]
    study: str
    key: _Key
    data: _Name
    model: _Name
    scheme: _Name
    cluster: _Name
    workers: Whole
    servers: Count
    batch_size: Whole
    seed: Count
    started: Annotated[str, AfterValidator(_with_zone)]
    wall_seconds: Annotated[
        float, Field(ge=-1e12, le=1e12)
    ]  # negative in records of earlier code, if the clock was set back
    launch_seconds: Finite | None
    load_of_others: Plain | None  # CPU time of other programs / that of the cores it wants
    jobs: Whole | None
    accelerator: str | None
    server_device: str | None  # on GPUs only
    workers_per_accelerator: Whole | None  # on GPUs only
    hardware: _Hardware
    versions: dict[Annotated[str, Field(pattern=r"^[\w.-]+$")], str]
    commit: str
    source_digest: str
    retimed_from: _Key | None
    fault_samples: Plain | None
    fault_seconds: Finite | None
    environment: bool | None  # True if the machine or the network made it fail

    global_batch_size: Images | None = number(attrgetter("first.images_per_update"))
    lr: Plain | None = number(attrgetter("first.lr"))
    momentum: Plain | None = number(attrgetter("first.momentum"))
    samples: Images | None = number()
    dropped_samples: Images | None = number(lambda o: len(o.dropped) * o.batch_size)
    distinct_samples: Images | None = number()
    updates: Updates | None = number()
    seconds: Seconds | None = number(
        heading="seconds of the training clock", section=_TIMES, place=2
    )
    images_per_second: Rate | None = number(heading="images/s", place=1)
    updates_per_second: Plain | None = number(
        lambda o: o.updates / o.seconds if o.seconds else None
    )
    real_seconds: Seconds | None = number(
        heading="real seconds", section=_TIMES, place=3, beside_virtual=True
    )
    real_images_per_second: Rate | None = number(
        heading="real images/s", section=_TIMES, place=4, beside_virtual=True
    )
    late_steps: Plain | None = number(_of_workers("late_steps"))
    top1: Share | None = number(
        _score("last_score", "top1"),
        "top-1, validation",
        place=3,
        of="validation_images",
    )
    top5: Share | None = number(_score("last_score", "top5"))
    train_loss: Nats | None = number(_train_loss)
    validation_loss: Nats | None = number(
        _score("last_score", "loss"), "validation loss", section=_TIMES, place=1
    )
    test_top1: Share | None = number(
        _score("test", "top1"), "top-1, test", place=2, of="test_images"
    )
    averaged_top1: Share | None = number(_score("last_score", "averaged_top1"))
    averaged_test_top1: Share | None = number(
        _score("test", "averaged_top1"), "top-1, test, moving average", place=5, of="test_images"
    )
    test_top5: Share | None = number(_score("test", "top5"))
    test_loss: Nats | None = number(_score("test", "loss"))
    validation_images: Images | None = number(_score("last_score", "num_images"))
    test_images: Images | None = number(_score("test", "num_images"))
    staleness_mean: Updates | None = number(
        _staleness(lambda pushes: float(pushes.mean())),
        "staleness",
        section=_TIMES,
        place=5,
    )
    staleness_max: Updates | None = number(_staleness(lambda pushes: int(pushes.max())))
    stale_share: Share | None = number(_staleness(lambda pushes: float((pushes > 0).mean())))
    data_wait_share: Share | None = number(_data_wait_share)
    bytes_sent: Bytes | None = number(_of_workers("bytes_sent"))
    bytes_received: Bytes | None = number(_of_workers("bytes_received"))
    activation_bytes_sent: Bytes | None = number(_of_workers("activation_bytes_sent"))
    shuffle_bytes: Bytes | None = number(attrgetter("data_moved.shuffle_bytes"))
    shuffle_seconds: Seconds | None = number(attrgetter("data_moved.shuffle_seconds"))
    data_digest: Text | None = number()
    optimizer: Text | None = number(attrgetter("first.optimizer"))
    scheduler: Text | None = number(attrgetter("first.scheduler"))
    num_parameters: Plain | None = number(attrgetter("first.num_parameters"))
    evaluated: Text | None = number(attrgetter("first.evaluated"))
    engine: Text | None = number(attrgetter("first.strategy.engine"))
    certificate: Text | None = number(attrgetter("certificate.words"))
    steps_spread: Plain | None = number(lambda o: int(np.ptp([w.steps for w in o.workers])))
    held_answers: Plain | None = number(lambda o: sum(server.held for server in o.servers))
    checkpoints: Plain | None = number(attrgetter("first.checkpoints"))
    resumes: Plain | None = number(attrgetter("first.resumes"))
    lost_workers: Lines | None = number(lambda o: [asdict(lost) for lost in o.lost])
    peak_rss_bytes: Bytes | None = number(_most("peak_rss_bytes"))
    stopped_seconds: Seconds | None = number(_most("stopped_seconds"))


_HINTS = get_type_hints(ResultFields, include_extras=True)
NUMBERS = [
    Number(each.name, get_args(_HINTS[each.name])[0].__metadata__[0], **each.metadata)
    for each in fields(ResultFields)
    if each.metadata
]


def measured(observed: "Observed") -> dict[str, Value]:
    """Return the value of each number, by name."""
    return {number.name: number.of_run(observed) for number in NUMBERS}


def result(observed: "Observed") -> dict[str, Value]:
    """Return the observed part of `result.json`.

    It consists of how the run ended, the numbers of workers and servers, and all NUMBERS.
    """
    status, reason = ending(observed)
    return {
        "status": status,
        "reason": reason,
        "workers": observed.first.strategy.counted,
        "servers": len(observed.servers),
        **measured(observed),
    }


def ending(observed: "Observed") -> tuple[str, str]:
    """Return the status of a run, and why it ended so.

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
        return "diverged", "weights are no longer finite"
    if observed.is_scored and (last is None or finite(last.loss) is None):
        return "diverged", "the validation loss is not finite"
    train_loss = observed.train_losses.get(last.samples) if last else None
    if last and last.at_chance:
        sides = {"validation": last.loss, "training": train_loss}
        losses = {side: loss for side, loss in sides.items() if loss is not None}
        is_far = last.loss > _FAR * last.guess_loss or not all(map(math.isfinite, losses.values()))
        if is_far or min(losses.values()) >= _NOT_BELOW * last.guess_loss:
            words = " and ".join(f"{loss:.4g} in {side}" for side, loss in losses.items())
            guess = f"guessing among {last.num_classes} classes has {last.guess_loss:.4g}"
            return "diverged" if is_far else "untrained", f"the final loss is {words}; {guess}"
    if not (observed.certificate.earned or observed.lost):
        return "failed", observed.certificate.words
    reasons = [
        f"worker {each.worker} was lost after {each.steps} steps: {each.reason}"
        for each in observed.lost
    ]
    if last and last.at_chance:
        share, most = f"{last.largest_class:.3f}", f"{last.most_by_chance:.3f}"
        chance = f"of {last.num_images} images {share} are of one class, so chance may reach {most}"
        reasons.append(f"its top-1, {last.top1:.3f}, is not above chance: {chance}")
        if train_loss is not None and train_loss < _NEAR_ZERO * last.guess_loss:
            reasons[-1] += (
                f", but its training loss, {train_loss:.3f}, is near zero: they disagree, perhaps "
                "since forward returns something else than what the training steps score"
            )
    return "finished", "; ".join(reasons)


def shown_numbers() -> list[Number]:
    """Return the numbers that are averaged and shown, in their order on the page."""
    sections = get_args(Section)
    shown = [number for number in NUMBERS if number.heading]
    return sorted(shown, key=lambda number: (sections.index(number.section), number.place))


def fault_of_result(result: Result) -> str | None:
    """Return why a parsed `result.json` is invalid, or None."""
    if fault := fault_of_fields(ResultFields, result):
        return fault
    needed = (
        result if result["status"] == "failed" else {n for n, v in result.items() if v is not None}
    )
    lacking = [name for name in _NEEDED if name not in needed]
    return f"{lacking[0]}: a record needs it" if lacking else None
