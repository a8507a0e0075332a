"""Writes plans as JSON."""

import json
from collections.abc import Sequence
from statistics import median

from paceline.planning.plan import Planned
from paceline.planning.plan_table import PARTS
from paceline.planning.programme import Plan
from paceline.planning.shortlist import Compared
from paceline.planning.verify import VerifiedPlan, differences, rank


def as_json(
    planned: Sequence[Planned],
    compared: Sequence[Compared],
    verified: Sequence[VerifiedPlan],
    memory: float,
) -> str:
    """Return all batch sizes with their plans, and the shortlist from the choice on."""
    content = {
        "memory": memory,
        "batch_size": compared[0].planned.batch_size,
        "whole_steps": [_json_compared(each, compared[0]) for each in compared],
        "batch_sizes": [_json(each) for each in planned],
        "verified": _json_verified(verified, compared[0].planned) if verified else None,
    }
    return json.dumps(content, indent=2) + "\n"


def _json_compared(each: Compared, chosen: Compared) -> dict[str, object]:
    return {
        "batch_size": each.planned.batch_size,
        "plan": _json_plan(each.plan, _names(each.planned)),
        "measured_seconds": each.step_seconds,
        "rounds": len(each.seconds),
        "beside_choice": chosen.to(each)._asdict(),
    }


def _json_verified(verified: Sequence[VerifiedPlan], planned: Planned) -> dict[str, object]:
    compared = differences(verified)
    plans = [
        {
            "plan": _json_plan(each.plan, _names(planned)),
            "measured_seconds": median(each.seconds),
            "beside_choice": apart._asdict(),
            "peak": each.peak._asdict() if each.peak else None,
        }
        for each, apart in zip(verified, compared, strict=True)
    ]
    return {
        "place": rank(verified),
        "num_faster": sum(each.faster for each in compared),
        "rounds": len(verified[0].seconds),
        "plans": plans,
    }


def _json(planned: Planned) -> dict[str, object]:
    measured = planned.measured
    names = _names(planned)
    return {
        "batch_size": planned.batch_size,
        "bytes": {part: getattr(measured.memory, part) for part in PARTS},
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


def _names(planned: Planned) -> list[str]:
    return [block.name for block in planned.measured.programme.blocks]
