"""Views of plans in the terminal.

A plan chooses, for each block of a network, its layout, recomputation and precision.
"""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from paceline.command.terminal import plain_table
from paceline.prediction.blocks import PLAIN
from paceline.prediction.plan import Planned
from paceline.prediction.programme import Plan
from paceline.prediction.race import Compared

_PARTS = ("weights", "gradients", "optimizer", "images", "saved", "workspace", "peak")


def plan_view(
    planned: Sequence[Planned], compared: Sequence[Compared], memory: float
) -> Iterator[RenderableType]:
    """Yield tables of the memory and the plans of all batch sizes, and the choice with reasons.

    `compared`: plans whose whole steps were measured; the first one is the choice. `memory`: limit
    [bytes].
    """
    yield "memory of an unchanged step [MB]"
    yield plain_table([">batch_size", *(f">{part}" for part in _PARTS)], map(_memory_row, planned))
    yield "time of a step: unchanged, as measured; planned, as predicted by the fastest plan"
    names = [">batch_size", ">unchanged", ">planned", ">images/s", ">MB"]
    if has_target := any(each.updates is not None for each in planned):
        names += [">updates", ">to target"]
    yield plain_table(names, [_plan_row(each, has_target) for each in planned])
    chosen = compared[0]
    yield f"blocks at batch size {chosen.planned.batch_size:,}, as chosen and unchanged"
    names = ["block", "alternative", ">time", ">keeps MB", ">unchanged", ">keeps MB"]
    yield plain_table(names, _block_rows(chosen))
    yield "whole steps"
    names = [">batch_size", ">predicted", ">measured", ">error", ">images/s", ">rounds"]
    yield plain_table(["plan", *names], map(_whole_row, ("choice", "runner-up"), compared))
    yield "\n".join(_reasons(compared, memory))


def _memory_row(planned: Planned) -> list[str]:
    memory = planned.measured.memory
    return [f"{planned.batch_size:,}", *(_megabytes(getattr(memory, part)) for part in _PARTS)]


def _plan_row(each: Planned, has_target: bool) -> list[str]:
    row = [f"{each.batch_size:,}", _milliseconds(each.measured.step_seconds)]
    plan = each.plan
    if plan is None:
        return [*row, "none", "-", f"at least {_megabytes(each.smallest.fullest.bytes)}"]
    row += [_milliseconds(plan.seconds), f"{each.batch_size / plan.seconds:,.0f}"]
    row.append(_megabytes(plan.fullest.bytes))
    if has_target and each.updates is not None:
        return [*row, f"{each.updates:,.0f}", f"{each.cost(plan.seconds):,.3g} s"]
    return [*row, "-", "-"] if has_target else row


def _block_rows(chosen: Compared) -> Iterator[list[str]]:
    blocks = chosen.planned.measured.programme.blocks
    for block, option in zip(blocks, chosen.plan.options, strict=True):
        row = [block.name, str(option.alternative)]
        for each in (option, block.option(PLAIN)):
            row += [_milliseconds(each.seconds), _megabytes(each.kept)]
        yield row


def _whole_row(name: str, each: Compared) -> list[str]:
    seconds, batch_size = each.step_seconds, each.planned.batch_size
    row = [name, f"{batch_size:,}", _milliseconds(each.plan.seconds), _milliseconds(seconds)]
    error = f"{100 * (each.plan.seconds / seconds - 1):+.1f} %"
    return [*row, error, f"{batch_size / seconds:,.0f}", f"{len(each.seconds):,}"]


def _reasons(compared: Sequence[Compared], memory: float) -> Iterator[str]:
    chosen = compared[0]
    planned, fullest = chosen.planned, chosen.plan.fullest
    yield (
        f"chosen: batch size {planned.batch_size:,}, "
        f"{planned.batch_size / chosen.step_seconds:,.0f} images/s; needs "
        f"{_megabytes(fullest.bytes)} of {_megabytes(memory)} MB, most during {fullest.name}"
    )
    free = planned.unbounded
    if planned.cost(free.seconds) >= planned.predicted:
        yield "not limited by memory: no plan with more memory is predicted to be faster"
    else:
        gain = 100 * (1 - free.seconds / chosen.plan.seconds)
        yield (
            f"limited by memory: with {_megabytes(free.fullest.bytes)} MB a step is predicted to "
            f"take {gain:.1f} % less; {_changes(chosen.plan, free, planned)}"
        )
    yield _runner_up(compared)
    if left_out := planned.measured.left_out:
        reasons = "; ".join(sorted({reason for _, _, reason in left_out}))
        yield f"not possible here: {len(left_out)} alternatives of blocks: {reasons}"
    yield (
        "times: medians of forward, backward and update; alternatives with bf16 round their results"
    )


def _runner_up(compared: Sequence[Compared]) -> str:
    if len(compared) == 1:
        return "runner-up: none; no other plan is predicted to be nearly as fast"
    chosen, other = compared[:2]
    apart = chosen.to(other)
    verdict = "" if apart.significant or apart.low is None else ", statistically tied"
    unit = "seconds per image" if other.planned.updates is None else "seconds to target"
    changed = _changes(chosen.plan, other.plan, other.planned) or "the same alternatives"
    return f"runner-up of {len(compared)} compared, {unit}: {apart}{verdict}; {changed}"


def _changes(plan: Plan, other: Plan, planned: Planned) -> str:
    rows = zip(planned.measured.programme.blocks, plan.options, other.options, strict=True)
    return ", ".join(
        f"{block.name}: {theirs.alternative}"
        for block, ours, theirs in rows
        if ours.alternative != theirs.alternative
    )


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:,.2f} ms"


def _megabytes(number: float) -> str:
    return f"{number / 1e6:,.{2 if number < 1e8 else 0}f}"
