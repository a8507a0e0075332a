"""Compares images/s, exchange and staleness of real processes with what a model predicts.

A prediction counts as near if its relative error is within a limit, else as far.
"""

import math
from functools import lru_cache

import pandas as pd
from scipy.stats import hmean

from paceline.analysis.comparison import REFERENCE
from paceline.analysis.configuration import Configuration, configurations, matching
from paceline.analysis.frames import Frame, Row
from paceline.analysis.tables import Tables

NEAR = {"measured": 0.15, "paced": 0.10}  # largest relative error that is near, by kind
_SIDES = ("images_per_second", "predicted_images_per_second")
NOISE = 0.10  # share by which two rates must differ to be compared
EXCHANGE_NEAR = 0.20  # largest relative error of predicted seconds of exchange that is near
SIZE = 0.05  # of the test of staleness: how often it rejects data drawn from the prediction
_RATE = ("n", "half", "observed", "least", "most", "predicted", "error", "verdict")
_RATIOS = ("half", "against", "observed_ratio", "predicted_ratio", "error", "verdict")


def predicted(tables: Tables, _: Configuration, points: Frame) -> Row:
    """Return the columns on images/s of measured or paced points that have predictions.

    - `rate_observed`, `rate_predicted`: harmonic means over `rate_n` seeds, which are the rates of
      one long run of all of them;
    - `rate_least`, `rate_most`: smallest and largest observed images/s of a seed;
    - `rate_error`: relative error of the prediction;
    - `rate_half`: validation or development, if the study is divided into these two halves;
    - `rate_verdict`: near if the error is within the limit in NEAR, far if not; calibrated if the
      model was fitted to these points.
    """
    runs = _with_predictions(tables)
    own = runs[runs.index.isin(points.index)]
    if not len(own):
        return {}
    seeds: Frame = own["images_per_second"].astype(float)
    found = _held(
        own, NEAR[own["kind"].iloc[0]], *(float(hmean(own[side].astype(float))) for side in _SIDES)
    )
    found |= {"least": seeds.min(), "most": seeds.max()}
    if (own["predicted_kind"] == "calibrated").any():
        found["verdict"] = "calibrated"
    return {f"rate_{name}": found[name] for name in _RATE}


def validation_errors(tables: Tables) -> dict[tuple[str, str], list[float]]:
    """Return, by model, the logarithms of observed / predicted images/s of each configuration to
    which no model was fitted and whose study sets it aside for validation.
    """
    errors = dict[tuple[str, str], list[float]]()
    names = dict.fromkeys(["data", *tables.axes])
    for configuration, points in configurations(tables.runs, list(names)):
        found = predicted(tables, configuration, points)
        if found.get("rate_half") == "validation" and found["rate_verdict"] != "calibrated":
            of = ("two_cores", str(points["model"].iloc[0]))
            errors.setdefault(of, []).append(-math.log1p(found["rate_error"]))
    return errors


def predicted_exchange(tables: Tables, _: Configuration, points: Frame) -> Row:
    """Return the columns on exchange and staleness of paced points that have predictions.

    - `exchange_observed`, `exchange_predicted`: mean seconds by which messages and servers prolong
      a step;
    - `exchange_staleness_distance`: total variation distance between the observed and the predicted
      distribution of staleness;
    - `exchange_staleness_p`: smallest p-value of a seed, multiplied by the number of seeds;
    - `exchange_staleness_verdict`: apart if this p-value is at most SIZE, else alike;
    - `exchange_n`, `exchange_half`, `exchange_error`, `exchange_verdict`: as at `predicted`, with
      the limit EXCHANGE_NEAR.
    """
    runs = _with_predictions(tables)
    own = runs[runs.index.isin(points.index) & (runs["kind"] == "paced")]
    if not len(own) or "predicted_free_images_per_second" not in own:
        return {}
    images = own["workers"] * own["batch_size"]  # of all workers' steps
    free = images / own["predicted_free_images_per_second"]
    seconds = ((images / own[name].astype(float) - free).mean() for name in _SIDES)
    found = _held(own, EXCHANGE_NEAR, *seconds)
    p = own["predicted_staleness_p"].astype(float)
    if p.notna().any():
        least = min(1.0, len(p) * p.min())
        found["staleness_distance"] = own["predicted_staleness_distance"].astype(float).mean()
        found |= {"staleness_p": least, "staleness_verdict": "apart" if least <= SIZE else "alike"}
    return {f"exchange_{name}": value for name, value in found.items()}


def _held(own: Frame, limit: float, observed: float, modelled: float) -> Row:
    """Return a prediction beside what was observed, and whether its error is within the limit."""
    error = modelled / observed - 1
    return {
        "n": len(own),
        "half": own["predicted_half"].iloc[0],
        "observed": observed,
        "predicted": modelled,
        "error": error,
        "verdict": "near" if abs(error) <= limit else "far",
    }


@lru_cache(maxsize=1)
def _with_predictions(tables: Tables) -> Frame:
    """Return the points that have both observed images/s and a prediction."""
    found = tables.predictions.set_index("key").add_prefix("predicted_")
    runs = tables.runs.join(found, on="key", how="inner")
    return runs.dropna(subset=["images_per_second"])


def predicted_comparisons(tables: Tables) -> Frame:
    """Return a row for each predicted configuration and each configuration it is compared with.

    A configuration is compared with the reference scheme at the same settings, and with the same
    scheme on one worker. Ratios are those of images/s, and `error` is the relative error of the
    predicted ratio. `verdict` is too close if the observed ratio differs from 1 by at most NOISE;
    else right if the observed and the predicted ratio are on the same side of 1, and wrong if not.
    A configuration to which the model was fitted has no row.
    """
    runs, rows = _with_predictions(tables), list[Row]()
    found = [
        each | predicted(tables, each, points) for each, points in configurations(runs, tables.axes)
    ]
    table, names = pd.DataFrame(found), ["kind", *tables.axes]
    for row in found:
        if row["rate_verdict"] == "calibrated":
            continue
        same = {name: row[name] for name in names}
        for against, other in ((REFERENCE, {"scheme": REFERENCE}), ("1 worker", {"workers": 1})):
            base = matching(table, same | other)
            if same | other != same and len(base):
                rows.append(same | _ratios(against, row, base.iloc[0]))
    return pd.DataFrame(rows, columns=[*names, *_RATIOS])


def _ratios(against: str, row: Row, base: Frame) -> Row:
    observed = row["rate_observed"] / base["rate_observed"]
    modelled = row["rate_predicted"] / base["rate_predicted"]
    verdict = "right" if (observed > 1) == (modelled > 1) else "wrong"
    return {
        "half": row["rate_half"],
        "against": against,
        "observed_ratio": observed,
        "predicted_ratio": modelled,
        "error": modelled / observed - 1,
        "verdict": "too close" if abs(observed - 1) <= NOISE else verdict,
    }
