"""Writes plans as text and as JSON."""

import json
from collections.abc import Sequence
from statistics import median

from paceline.planning.measured_peak import Peak
from paceline.planning.plan import Planned, best
from paceline.planning.programme import Plan
from paceline.planning.verify import VerifiedPlan, rank

_PARTS = ("weights", "gradients", "optimizer", "images", "saved", "workspace", "peak")


def table(planned: Sequence[Planned], memory: float) -> str:
    """Return the memory and the plans of all batch sizes, and the choice with its reasons."""
    chosen = best(planned)
    return "\n\n".join(
        [
            _aligned([_memory_head(), *map(_memory_row, planned)]),
            _aligned([_plan_head(planned), *(_plan_row(each, planned) for each in planned)]),
            _aligned([_block_head(), *_block_rows(chosen)]),
            "\n".join(_reasons(chosen, memory)),
        ]
    )


def peak_table(planned: Sequence[Planned], peaks: Sequence[Peak]) -> str:
    """Return the counted memory of steps as they are beside the measured, by batch size."""
    rows = [["batch_size", "MB counted", "allocated", "error", "resident"]]
    for each, peak in zip(planned, peaks, strict=True):
        counted = each.measured.memory.peak
        error = f"{100 * (counted / peak.allocated - 1):+.1f} %"
        numbers = [_megabytes(counted), _megabytes(peak.allocated), error, _resident(peak)]
        rows.append([f"{each.batch_size:,}", *numbers])
    return f"{_aligned(rows)}\nallocated: by torch; resident: with what malloc and libraries keep"


def verified_table(verified: Sequence[VerifiedPlan]) -> str:
    """Return measured beside predicted, and the place of the choice."""
    rows = [["plan", "predicted", "measured", "MB counted", "allocated", "resident"]]
    for each in verified:
        peak = each.peak
        rows.append(
            [
                str(each.plan),
                _milliseconds(each.plan.seconds),
                _milliseconds(median(each.seconds)),
                _megabytes(each.plan.fullest.bytes),
                _megabytes(peak.allocated) if peak else "-",
                _resident(peak) if peak else "-",
            ]
        )
    least = min(median(each.seconds) for each in verified)
    ratio = median(verified[0].seconds) / least
    sentence = (
        f"the choice is number {rank(verified)} of {len(verified)} measured, "
        f"{ratio:.3f} times the fastest; n={len(verified[0].seconds)} steps each, medians"
    )
    return f"{_aligned(rows)}\n{sentence}"


def as_json(planned: Sequence[Planned], memory: float) -> str:
    """Return all batch sizes with their parts of memory, plans and options."""
    content = {
        "memory": memory,
        "batch_size": best(planned).batch_size,
        "batch_sizes": [_json(each) for each in planned],
    }
    return json.dumps(content, indent=2) + "\n"


def _json(planned: Planned) -> dict[str, object]:
    measured = planned.measured
    names = [block.name for block in measured.programme.blocks]
    return {
        "batch_size": planned.batch_size,
        "bytes": {part: getattr(measured.memory, part) for part in _PARTS},
        "step_seconds": measured.step_seconds,
        "updates_to_target": planned.updates,
        "plans": [_json_plan(plan, names) for plan in planned.plans],
        "unbounded": _json_plan(planned.unbounded, names),
        "smallest": _json_plan(planned.smallest, names),
        "left_out": [list(each) for each in measured.left_out],
    }


def _json_plan(plan: Plan, names: Sequence[str]) -> dict[str, object]:
    pairs = zip(names, plan.options, strict=True)
    return {
        "seconds": plan.seconds,
        "bytes": plan.fullest.bytes,
        "fullest": plan.fullest.name,
        "alternatives": {name: str(option.alternative) for name, option in pairs},
    }


def _memory_head() -> list[str]:
    return ["batch_size", *_PARTS[:-1], "MB, as it is"]


def _memory_row(planned: Planned) -> list[str]:
    memory = planned.measured.memory
    return [f"{planned.batch_size:,}", *(_megabytes(getattr(memory, part)) for part in _PARTS)]


def _plan_head(planned: Sequence[Planned]) -> list[str]:
    head = ["batch_size", "as it is", "by plan", "images/s", "MB"]
    return [*head, "updates", "to target"] if _has_target(planned) else head


def _plan_row(each: Planned, planned: Sequence[Planned]) -> list[str]:
    row = [f"{each.batch_size:,}", _milliseconds(each.measured.step_seconds)]
    if not each.plans:
        needed = each.smallest.fullest.bytes
        return [*row, "none", "-", f"{_megabytes(needed)} at least"]
    plan = each.plans[0]
    row += [_milliseconds(plan.seconds), f"{each.images_per_second:,.0f}"]
    row.append(_megabytes(plan.fullest.bytes))
    if not _has_target(planned):
        return row
    seconds = each.seconds_to_target
    known = seconds is not None
    return [*row, f"{each.updates:,.0f}" if known else "-", f"{seconds:,.3g} s" if known else "-"]


def _has_target(planned: Sequence[Planned]) -> bool:
    return any(each.updates is not None for each in planned)


def _block_head() -> list[str]:
    return ["block", "alternative", "takes", "keeps MB", "plain", "keeps MB"]


def _block_rows(planned: Planned) -> list[list[str]]:
    blocks = planned.measured.programme.blocks
    rows = []
    for block, option in zip(blocks, planned.plans[0].options, strict=True):
        numbers = [
            part
            for o in (option, block.plain)
            for part in (_milliseconds(o.seconds), _megabytes(o.kept))
        ]
        rows.append([block.name, str(option.alternative), *numbers])
    return rows


def _reasons(planned: Planned, memory: float) -> list[str]:
    plan, fullest = planned.plans[0], planned.plans[0].fullest
    lines = [
        f"chosen: batch size {planned.batch_size:,}, {planned.images_per_second:,.0f} images/s; "
        f"{_megabytes(fullest.bytes)} of {_megabytes(memory)} MB, most in {fullest.name}",
        _bound(planned),
    ]
    if len(planned.plans) > 1:
        other = planned.plans[1]
        more = 100 * (other.seconds / plan.seconds - 1)
        lines.append(
            f"next best: {more:.1f} % slower, {_megabytes(other.fullest.bytes)} MB; "
            f"{_differences(planned, other)}"
        )
    left_out = planned.measured.left_out
    if left_out:
        reasons = "; ".join(sorted({reason for _, _, reason in left_out}))
        lines.append(f"left out: {len(left_out)} alternatives of blocks: {reasons}")
    lines.append("seconds: medians of forward, backward and update; bf16 rounds what it computes")
    return lines


def _bound(planned: Planned) -> str:
    plan, free = planned.plans[0], planned.unbounded
    if free.seconds >= plan.seconds:
        return "memory does not bind: with more of it no plan is faster"
    gain = 100 * (1 - free.seconds / plan.seconds)
    return (
        f"memory binds: with {_megabytes(free.fullest.bytes)} MB a step takes {gain:.1f} % less; "
        f"{_differences(planned, free)}"
    )


def _differences(planned: Planned, other: Plan) -> str:
    rows = zip(
        planned.measured.programme.blocks, planned.plans[0].options, other.options, strict=True
    )
    return ", ".join(f"{b.name}: {theirs.alternative}" for b, o, theirs in rows if o != theirs)


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    width = max(map(len, rows))
    full = [[*row, *([""] * (width - len(row)))] for row in rows]
    widths = [max(len(row[column]) for row in full) for column in range(width)]
    lines = ["  ".join(f"{c:{w}}" for c, w in zip(row, widths, strict=True)) for row in full]
    return "\n".join(line.rstrip() for line in lines)


def _resident(peak: Peak) -> str:
    return "-" if peak.resident is None else _megabytes(peak.resident)


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:,.2f} ms"


def _megabytes(number: float) -> str:
    return f"{number / 1e6:,.{2 if number < 1e8 else 0}f}"
