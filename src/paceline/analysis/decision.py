"""Decides which scheme to use in each situation, by one rule.

A situation is what the user cannot choose: the number of workers, and the settings that do not
belong to the scheme. The rule: use the fastest scheme that is shown to lose at most the margin of
top-1 against the most accurate scheme of the situation; of schemes that cannot be told apart in
speed, the simplest. Tests within a situation are adjusted for their number (Holm).
"""

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd

from paceline.analysis.comparison import METRICS, SPEED, is_reference, losses, one_worker
from paceline.analysis.configuration import (
    groups,
    matching,
    num_processes,
    situation_columns,
    with_processes,
)
from paceline.analysis.configuration_table import configuration_table
from paceline.analysis.frames import Frame, Row
from paceline.analysis.intervals import (
    DIFFERENCES,
    FEWEST,
    LEVEL,
    NONE,
    holm,
    interval,
    p_above,
    p_differs,
    paired,
)
from paceline.analysis.searches import edge_of
from paceline.analysis.tables import Tables
from paceline.prediction.evidence import FACTOR

BETTER, WORSE, EQUIVALENT, NOT_TOLD = "better", "worse", "equivalent", "not told"
USE, AS_FAST, SLOWER, LESS_ACCURATE = "use", "as fast", "slower", "less accurate"
NO_FASTER, NOT_TRAINED = "not faster than one worker", "not trained"
NOT_JUDGED = "not judged"
SHARES_NOTHING = "independent"  # an upper bound on speed, which is never recommended
SIMPLEST = (  # the first exchange only what all-reduce does; others come last
    "sync_allreduce",
    "local_sgd",
    "post_local_sgd",
    "diloco",
    "sync_parameter_server",
    "sync_gossip",
    "gossip",
    "async_parameter_server",
)
_COMPARED = (SPEED, "speedup", "efficiency", "one_worker_top1_difference")
_COMPARED += ("reference_speedup", "reference_top1_difference")


class Arm(NamedTuple):
    """Scheme in a situation: its row, its finished runs, and those of one worker beside it."""

    row: Row
    runs: Frame
    one: Frame


@lru_cache(maxsize=2)
def decision(tables: Tables) -> Frame:
    """Return one row per situation and scheme, with columns of configurations.csv.

    `top1` is on test images if they were scored, else on validation images. Further columns:

    - `one_worker_accuracy`: `better` or `worse` than one worker if the difference is significant;
      else `equivalent` if it is shown to lie within the margin of the study (two one-sided tests),
      or `not told`;
    - `loss_<end>`: top-1 minus that of the most accurate scheme of the situation;
    - `at_edge`: edge of the search range at which the best trial of the scheme is, or that its
      tuning has not ended; a better setting may then exist;
    - `verdict`: USE; AS_FAST, if it cannot be told apart in speed from the fastest; SLOWER;
      LESS_ACCURATE, if it is not shown to be within the margin; NO_FASTER, in place of USE;
      NOT_TRAINED, if a run did not train; NOT_JUDGED, for a less accurate scheme `at_edge`, and for
      one without a score. Empty for one worker, for SHARES_NOTHING, and if no run finished.
    """
    table, columns = configuration_table(tables), situation_columns(tables.axes)
    rows = list[Row]()
    for situation, own in groups(with_processes(table), columns):
        one = one_worker(tables, situation)
        arms = [_arm(tables, dict(row), one) for _, row in own.iterrows()]
        found = zip(arms, _accuracies(arms, tables.margin), _verdicts(tables, arms), strict=True)
        rows += [arm.row | accuracy | verdict for arm, accuracy, verdict in found]
    return pd.DataFrame(rows)


def _arm(tables: Tables, row: Row, one: Frame) -> Arm:
    runs = matching(tables.finished, {n: row[n] for n in ("kind", "data", *tables.axes)})
    return Arm(_columns(tables, row), runs, one[:0] if num_processes(row) == 1 else one)


def _columns(tables: Tables, row: Row) -> Row:
    """Return the columns that a row of the decision has of its row of configurations.csv."""
    axes = dict.fromkeys([*situation_columns(tables.axes), "kind", "data", *tables.axes])
    names = [*axes, "n", "n_finished", "n_diverged", "n_failed", "baseline", "reference"]
    known = {name: row[name] for name in names}
    scored = METRICS[1] if row.get(f"{METRICS[1]}_n") else METRICS[0]
    for name in (scored, *_COMPARED):
        own = {f"{name}_{end}": row.get(f"{name}_{end}") for end in ("mean", "low", "high", "n")}
        known |= {column.removeprefix("test_"): value for column, value in own.items()}
    return known | {"at_edge": edge_of(tables, row)}


def _accuracies(arms: Sequence[Arm], margin: float) -> list[Row]:
    """Return the verdict on the accuracy of each scheme against one worker."""
    lost = [losses(arm.runs, arm.one) for arm in arms]
    differs = holm([p_differs(each) for each in lost])
    within = holm([max(p_above(each, -margin), p_above(-each, -margin)) for each in lost])
    alpha, texts = 1 - LEVEL, list[str]()
    for each, p, p_within in zip(lost, differs, within, strict=True):
        told = (BETTER if each.mean() > 0 else WORSE) if p <= alpha else ""
        texts.append(told or (EQUIVALENT if p_within <= alpha else NOT_TOLD if len(each) else ""))
    return [{"one_worker_accuracy": text} for text in texts]


def _verdicts(tables: Tables, arms: Sequence[Arm]) -> list[Row]:
    """Return the verdict on each scheme of a situation, and its loss against the most accurate."""
    found: list[Row] = [NONE.named("loss") | {"verdict": ""} for _ in arms]
    if all(num_processes(arm.row) == 1 for arm in arms):
        return found
    ranked, able = list[int](), set[int]()
    for place, arm in enumerate(arms):
        if arm.row["n_diverged"]:
            found[place]["verdict"] = NOT_TRAINED
        elif len(arm.runs) and arm.row["scheme"] != SHARES_NOTHING:
            ranked.append(place)
    scored = [place for place in ranked if arms[place].row["top1_n"]]
    if scored:
        told = [place for place in scored if arms[place].row["top1_n"] >= FEWEST]
        best = max(told or scored, key=lambda place: arms[place].row["top1_mean"])
        others = [place for place in scored if place != best]
        lost = [losses(arms[place].runs, arms[best].runs) for place in others]
        shown = holm([p_above(each, -tables.margin) for each in lost]) <= 1 - LEVEL
        able = {best, *(place for place, is_shown in zip(others, shown, strict=True) if is_shown)}
        for place, each in zip(others, lost, strict=True):
            found[place] |= interval(each, DIFFERENCES).named("loss")
    else:
        able = {*ranked}
    for place in ranked:
        is_judged = not arms[place].row["at_edge"] and (place in scored or not scored)
        less = LESS_ACCURATE if is_judged else NOT_JUDGED
        found[place]["verdict"] = SLOWER if place in able else less
    as_fast = _as_fast(arms, able)
    for place in as_fast:
        found[place]["verdict"] = AS_FAST
    faster = [place for place in as_fast if _is_faster(arms[place].row)]
    if able:
        use = min(faster or as_fast, key=lambda place: _complexity(tables, arms[place]))
        found[use]["verdict"] = USE if faster else NO_FASTER
    return found


def _as_fast(arms: Sequence[Arm], able: Collection[int]) -> list[int]:
    """Return the fastest of the schemes at the places `able`, and those that are as fast.

    Runs of real processes are told apart by t tests. Modelled times are known up to FACTOR, and
    fewer than FEWEST pairs of runs are told apart by as much.
    """
    if not able:
        return []
    fastest, *others = sorted(able, key=lambda place: -arms[place].row[f"{SPEED}_mean"])
    first, is_modelled = arms[fastest], arms[fastest].row["kind"] == "virtual"
    ratios = [np.divide(*paired(first.runs, arms[place].runs, SPEED)) for place in others]
    p = holm([p_differs(np.log(each)) for each in ratios])
    found = [fastest]
    for place, each, p_of_pair in zip(others, ratios, p, strict=True):
        means = first.row[f"{SPEED}_mean"] / arms[place].row[f"{SPEED}_mean"]
        is_tested = not is_modelled and len(each) >= FEWEST
        if not (p_of_pair <= 1 - LEVEL if is_tested else means >= FACTOR):
            found.append(place)
    return found


def _complexity(tables: Tables, arm: Arm) -> tuple[int, bool, bool, float]:
    """Return how simple a scheme is, simpler ones first; of equally simple ones, the fastest.

    Gradients that are sent whole count as simpler than compressed ones.
    """
    scheme = arm.row["scheme"]
    place = SIMPLEST.index(scheme) if scheme in SIMPLEST else len(SIMPLEST)
    other = not is_reference(tables.runs, arm.row)
    return place, other, not _sends_whole(tables, arm), -arm.row[f"{SPEED}_mean"]


def _is_faster(row: Row) -> bool:
    """Return True if a scheme is shown to be faster than one worker, or if nothing is known of one
    worker. Modelled times, and fewer than FEWEST pairs of runs, must differ by FACTOR.
    """
    mean, low = row["speedup_mean"], row["speedup_low"]
    is_tested = row["kind"] != "virtual" and row["speedup_n"] >= FEWEST
    return bool(np.isnan(mean) or (low > 1 if is_tested else mean >= FACTOR))


def _sends_whole(tables: Tables, arm: Arm) -> bool:
    """Return True unless a scheme compresses what it sends."""
    of_study = tables.about["settings"].get("scheme.compression", "none")
    return arm.row.get("scheme.compression", of_study) in ("none", "", None)
