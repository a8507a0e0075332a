"""Views of plans in the terminal.

A plan chooses, for each block of a network, its layout, recomputation and precision.
"""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from paceline.command.terminal import plain_table
from paceline.prediction.blocks import PLAIN
from paceline.prediction.plan import Planned
from paceline.prediction.race import Compared

_PARTS = ("weights", "gradients", "optimizer", "images", "saved", "workspace", "peak")


def plan_view(
    planned: Sequence[Planned], compared: Sequence[Compared], memory: float
) -> Iterator[RenderableType]:
    """Yield tables of all batch sizes, of the blocks of the choice and of the plans compared.

    `compared`: plans whose whole steps were measured; the first one is the choice. `memory`: limit
    [bytes].
    """
    yield "memory of an unchanged step [MB]"
    yield plain_table([">batch_size", *(f">{part}" for part in _PARTS)], map(_memory_row, planned))
    yield f"predicted: the fastest plan within {_megabytes(memory)} MB, and without a limit"
    names = [">batch_size", ">unchanged [ms]", ">planned [ms]", ">MB", ">no limit [ms]", ">MB"]
    yield plain_table(names, map(_plan_row, planned))
    chosen = compared[0]
    blocks = chosen.planned.measured.programme.blocks
    names = ["block", ">unchanged [ms]", ">keeps MB", "choice", ">[ms]", ">keeps MB", "runner-up"]
    others = [each.plan.options for each in compared[:2]][-1]
    rows = zip(blocks, chosen.plan.options, others, strict=True)
    yield plain_table(
        names,
        [
            [
                block.name,
                *(_milliseconds(block.option(PLAIN).seconds), _megabytes(block.option(PLAIN).kept)),
                *(str(own.alternative), _milliseconds(own.seconds), _megabytes(own.kept)),
                str(other.alternative) if len(compared) > 1 else "-",
            ]
            for block, own, other in rows
        ],
    )
    names = ["whole steps", ">batch_size", ">MB", ">predicted [ms]", ">measured [ms]", ">rounds"]
    names += [">images/s", ">seconds per image"]
    marks = ("choice", "runner-up")[: len(compared)]
    whole = [_whole_row(*each, chosen) for each in zip(marks, compared[:2], strict=True)]
    yield plain_table(names, whole)
    if left_out := chosen.planned.measured.left_out:
        reasons = "; ".join(sorted({reason for _, _, reason in left_out}))
        yield f"not possible here: {len(left_out)} alternatives of blocks: {reasons}"
    yield (
        "times: medians of forward, backward and update; alternatives with bf16 round their results"
    )


def _memory_row(planned: Planned) -> list[str]:
    memory = planned.measured.memory
    return [f"{planned.batch_size:,}", *(_megabytes(getattr(memory, part)) for part in _PARTS)]


def _plan_row(each: Planned) -> list[str]:
    row = [f"{each.batch_size:,}", _milliseconds(each.measured.step_seconds)]
    least = f"at least {_megabytes(each.smallest.fullest.bytes)}"
    for plan in (each.plan, each.unbounded):
        row += (
            [_milliseconds(plan.seconds), _megabytes(plan.fullest.bytes)]
            if plan
            else ["none", least]
        )
    return row


def _whole_row(name: str, each: Compared, chosen: Compared) -> list[str]:
    seconds, batch_size, apart = each.step_seconds, each.planned.batch_size, chosen.to(each)
    tied = ", tied" * (not apart.significant and apart.low is not None)
    return [
        name,
        f"{batch_size:,}",
        _megabytes(each.plan.fullest.bytes),
        _milliseconds(each.plan.seconds),
        _milliseconds(seconds),
        f"{len(each.seconds):,}",
        f"{batch_size / seconds:,.0f}",
        "" if each is chosen else f"{apart}{tied}",
    ]


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:,.2f}"


def _megabytes(number: float) -> str:
    return f"{number / 1e6:,.{2 if number < 1e8 else 0}f}"
