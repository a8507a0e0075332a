"""Writes plans as text."""

from collections.abc import Sequence

from paceline.planning.columns import aligned, megabytes, milliseconds
from paceline.planning.plan import Planned
from paceline.planning.programme import Plan
from paceline.planning.shortlist import Compared

PARTS = ("weights", "gradients", "optimizer", "images", "saved", "workspace", "peak")
_SHOWN = ("choice", "runner-up")


def table(planned: Sequence[Planned], compared: Sequence[Compared], memory: float) -> str:
    """Return the memory and the plans of all batch sizes, and the choice with its reasons."""
    chosen = compared[0]
    return "\n\n".join(
        [
            aligned([_memory_head(), *map(_memory_row, planned)]),
            aligned([_plan_head(planned), *(_plan_row(each, planned) for each in planned)]),
            aligned([_block_head(), *_block_rows(chosen)]),
            aligned([_whole_head(), *map(_whole_row, _SHOWN, compared)]),
            "\n".join(_reasons(compared, memory)),
        ]
    )


def _memory_head() -> list[str]:
    return ["batch_size", *PARTS[:-1], "MB, as it is"]


def _memory_row(planned: Planned) -> list[str]:
    memory = planned.measured.memory
    return [f"{planned.batch_size:,}", *(megabytes(getattr(memory, part)) for part in PARTS)]


def _plan_head(planned: Sequence[Planned]) -> list[str]:
    head = ["batch_size", "as it is", "predicted", "images/s", "MB"]
    return [*head, "updates", "to target"] if _has_target(planned) else head


def _plan_row(each: Planned, planned: Sequence[Planned]) -> list[str]:
    row = [f"{each.batch_size:,}", milliseconds(each.measured.step_seconds)]
    if not each.plans:
        needed = each.smallest.fullest.bytes
        return [*row, "none", "-", f"{megabytes(needed)} at least"]
    plan = each.plans[0]
    row += [milliseconds(plan.seconds), f"{each.batch_size / plan.seconds:,.0f}"]
    row.append(megabytes(plan.fullest.bytes))
    if not _has_target(planned):
        return row
    known = each.updates is not None
    target = f"{each.cost(plan.seconds):,.3g} s"
    return [*row, *((f"{each.updates:,.0f}", target) if known else ("-", "-"))]


def _has_target(planned: Sequence[Planned]) -> bool:
    return any(each.updates is not None for each in planned)


def _block_head() -> list[str]:
    return ["block", "alternative", "takes", "keeps MB", "plain", "keeps MB"]


def _block_rows(chosen: Compared) -> list[list[str]]:
    blocks = chosen.planned.measured.programme.blocks
    rows = []
    for block, option in zip(blocks, chosen.plan.options, strict=True):
        numbers = [
            part
            for o in (option, block.plain)
            for part in (milliseconds(o.seconds), megabytes(o.kept))
        ]
        rows.append([block.name, str(option.alternative), *numbers])
    return rows


def _whole_head() -> list[str]:
    return ["whole steps", "batch_size", "predicted", "measured", "error", "images/s", "rounds"]


def _whole_row(name: str, each: Compared) -> list[str]:
    seconds = each.step_seconds
    return [
        name,
        f"{each.planned.batch_size:,}",
        milliseconds(each.plan.seconds),
        milliseconds(seconds),
        f"{100 * (each.plan.seconds / seconds - 1):+.1f} %",
        f"{each.planned.batch_size / seconds:,.0f}",
        f"{len(each.seconds):,}",
    ]


def _reasons(compared: Sequence[Compared], memory: float) -> list[str]:
    chosen = compared[0]
    planned, fullest = chosen.planned, chosen.plan.fullest
    lines = [
        f"chosen: batch size {planned.batch_size:,}, "
        f"{planned.batch_size / chosen.step_seconds:,.0f} images/s; "
        f"{megabytes(fullest.bytes)} of {megabytes(memory)} MB, most in {fullest.name}",
        _bound(chosen),
        _runner_up(compared),
    ]
    left_out = planned.measured.left_out
    if left_out:
        reasons = "; ".join(sorted({reason for _, _, reason in left_out}))
        lines.append(f"left out: {len(left_out)} alternatives of blocks: {reasons}")
    lines.append("seconds: medians of forward, backward and update; bf16 rounds what it computes")
    return lines


def _bound(chosen: Compared) -> str:
    planned, free = chosen.planned, chosen.planned.unbounded
    if free.seconds >= planned.plans[0].seconds:
        return "memory does not bind: with more of it no plan is faster, by prediction"
    gain = 100 * (1 - free.seconds / chosen.plan.seconds)
    return (
        f"memory binds: with {megabytes(free.fullest.bytes)} MB a step takes {gain:.1f} % less, "
        f"by prediction; {_differences(chosen.plan, free, planned)}"
    )


def _runner_up(compared: Sequence[Compared]) -> str:
    if len(compared) == 1:
        return "runner-up: none; no other plan is near by prediction"
    chosen, other = compared[:2]
    apart = chosen.to(other)
    verdict = "" if apart.told_apart else ", they cannot be told apart"
    unit = "seconds per image" if other.planned.updates is None else "seconds to target"
    changed = _differences(chosen.plan, other.plan, other.planned) or "the same alternatives"
    return f"runner-up of {len(compared)} compared, {unit}: {apart}{verdict}; {changed}"


def _differences(plan: Plan, other: Plan, planned: Planned) -> str:
    rows = zip(planned.measured.programme.blocks, plan.options, other.options, strict=True)
    return ", ".join(
        f"{block.name}: {theirs.alternative}"
        for block, ours, theirs in rows
        if ours.alternative != theirs.alternative
    )
