"""Computes restricted mean times to the target, and finds the best one-worker runs."""

from paceline.analysis.configuration import Configuration, configurations, matching
from paceline.analysis.tables import Frame, Tables
from paceline.inference.crossing import NEVER, Crossing, crossing
from paceline.inference.ratio import fastest
from paceline.inference.restricted_mean import RestrictedMean, restricted_mean

_CHOSEN = ("batch_size", "global_batch_size", "training.", "scheme.")  # by whoever trains


def target_times(points: Frame, curves: Frame, target: float, horizon: float) -> RestrictedMean:
    """Return the restricted mean of the seconds of points to the target; its n may be 0.

    A run that diverged never reaches it; one that failed is left out, since what failed is the
    machine. Others that did not reach it might have, after their end.
    """
    trained = points[points["status"] != "failed"]
    crossings = [_crossing(run, curves, target) for _, run in trained.iterrows()]
    return restricted_mean(crossings, horizon)


def _crossing(run: Frame, curves: Frame, target: float) -> Crossing:
    curve = curves[curves["key"] == run["key"]].sort_values("samples", kind="stable")
    found = crossing(curve["seconds"], curve["top1"], target)
    return NEVER if run["status"] == "diverged" and not found.reached else found


def best_one_worker(
    tables: Tables, situation: Configuration, target: float, horizon: float
) -> tuple[str, RestrictedMean] | None:
    """Return the name and the time of the one-worker runs that are first at the target, or None.

    Its scheme, rate and batch are free. What a situation is given (data, network, cluster) it
    shares, as far as one worker was run with it.
    """
    alone = matching(tables.runs, {"kind": situation["kind"], "workers": 1})
    for name in ["data", *_given(tables)]:
        same = matching(alone, {name: situation[name]})
        alone = same if len(same) else alone
    alone = alone[alone["status"] != "failed"]
    found = [
        (_name(configuration), target_times(points, tables.curves, target, horizon))
        for configuration, points in (configurations(alone, tables.axes) if len(alone) else [])
    ]
    found = [side for side in found if side[1].reached]
    return found[fastest([mean for _, mean in found])] if found else None


def _name(configuration: Configuration) -> str:
    return " ".join(f"{k}={v}" for k, v in configuration.items() if k not in ("kind", "workers"))


def _given(tables: Tables) -> list[str]:
    return [name for name in tables.facets if not name.startswith(_CHOSEN)]


def horizon_of(tables: Tables, situation: Configuration) -> float:
    """Return the seconds of the longest run of the same kind and data: the horizon of the study."""
    same = {name: situation[name] for name in ("kind", "data")}
    return float(matching(tables.runs, same)["seconds"].max())
