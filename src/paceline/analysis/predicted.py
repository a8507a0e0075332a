"""Compares images/s of real processes with what a modelled cluster predicts for them."""

from collections.abc import Iterator

import pandas as pd
from scipy.stats import hmean

from paceline.analysis.comparison import REFERENCE
from paceline.analysis.configuration import Configuration, configurations, matching
from paceline.analysis.frames import Frame, Row
from paceline.analysis.tables import Tables

NEAR = {"measured": 0.15, "paced": 0.10}  # largest relative error that counts as near, by kind
NOISE = 0.10  # by which two configurations must differ to be compared
_RATES = ("half", "n", "observed", "least", "most", "predicted", "error", "verdict")
_RATIOS = ("half", "against", "observed_ratio", "predicted_ratio", "error", "verdict")


def predicted(tables: Tables) -> Frame:
    """Return a row for each measured or paced configuration that is predicted.

    `observed`, `predicted`: images/s, harmonic means over the seeds, as of one long run; `least`
    and `most`: of a seed. `half`: validation or development, if the study has both. `error`: of the
    prediction, relative. `verdict`: near or far; calibrated if the points went into the prediction.
    """
    rows = [each | _rates(points) for each, points in _predicted_configurations(tables)]
    return pd.DataFrame(rows, columns=["kind", *tables.axes, *_RATES])


def predicted_comparisons(tables: Tables) -> Frame:
    """Return a row for each predicted configuration and one that it is compared with.

    Those are sync_allreduce at the same settings, and the same scheme with one worker. Calibrated
    configurations are only the others of a comparison. Ratios are of images/s. `error`: of the
    predicted ratio, relative. `verdict`: right if both ratios are on the same side of 1, wrong if
    not, too close if the observed one differs from 1 by no more than NOISE.
    """
    table = predicted(tables)
    judged = table[table["verdict"] != "calibrated"]
    rows = [row for _, each in judged.iterrows() for row in _compared(table, tables.axes, each)]
    return pd.DataFrame(rows, columns=["kind", *tables.axes, *_RATIOS])


def _predicted_configurations(tables: Tables) -> Iterator[tuple[Configuration, Frame]]:
    if tables.predictions.empty:
        return
    found = tables.predictions.set_index("key")[["kind", "half", "images_per_second"]]
    found.columns = ["predicted_kind", "half", "predicted_rate"]
    runs = tables.runs.join(found, on="key", how="inner")  # those at chance have a rate, too
    yield from configurations(runs.dropna(subset=["images_per_second"]), tables.axes)


def _rates(points: Frame) -> Row:
    observed = points["images_per_second"].astype(float)
    rate, predicted_rate = (float(hmean(each)) for each in (observed, points["predicted_rate"]))
    error = predicted_rate / rate - 1
    calibrated = (points["predicted_kind"] == "calibrated").any()
    verdict = "near" if abs(error) <= NEAR[points["kind"].iloc[0]] else "far"
    return {
        "half": points["half"].iloc[0],
        "n": len(points),
        "observed": rate,
        "least": observed.min(),
        "most": observed.max(),
        "predicted": predicted_rate,
        "error": error,
        "verdict": "calibrated" if calibrated else verdict,
    }


def _compared(table: Frame, axes: list[str], row: Frame) -> Iterator[Row]:
    same = {name: row[name] for name in ("kind", *axes)}
    for against, base in (
        (REFERENCE, same | {"scheme": REFERENCE}),
        ("1 worker", same | {"workers": 1}),
    ):
        found = matching(table, base)
        if base != same and len(found):
            yield same | _ratios(against, row, found.iloc[0])


def _ratios(against: str, row: Frame, base: Frame) -> Row:
    observed = row["observed"] / base["observed"]
    modelled = row["predicted"] / base["predicted"]
    verdict = "right" if (observed > 1) == (modelled > 1) else "wrong"
    return {
        "half": row["half"],
        "against": against,
        "observed_ratio": observed,
        "predicted_ratio": modelled,
        "error": modelled / observed - 1,
        "verdict": "too close" if abs(observed - 1) <= NOISE else verdict,
    }
