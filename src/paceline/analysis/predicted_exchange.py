"""Compares the seconds of exchange of paced processes, and their staleness, with predictions."""

import pandas as pd

from paceline.analysis.configuration import configurations
from paceline.analysis.frames import Frame, Row
from paceline.analysis.tables import Tables

EXCHANGE_NEAR = 0.20  # largest relative error of predicted seconds of exchange that counts as near
SIZE = 0.05  # of the test of staleness: how often it rejects what is drawn from the prediction
EXCHANGE = (
    "Exchange: seconds that messages and servers add to a step of paced processes, over the same "
    f"steps with free messages; near within {100 * EXCHANGE_NEAR:.0f} %. Staleness: total "
    "variation between the distributions of pushes to the first server; p of a Monte Carlo test "
    "against predicted runs with other draws of step times, of size "
    f"{100 * SIZE:.0f} %."
)
_NUMBERS = ("half", "n", "exchange", "predicted_exchange", "error", "verdict")
_STALENESS = ("staleness_distance", "staleness_p", "staleness_verdict")


def predicted_exchange(tables: Tables) -> Frame:
    """Return a row for each paced configuration that is predicted.

    `exchange`: seconds that messages and servers add to a step, over what the same steps take if
    they took no time; means over the seeds. `error`: of the prediction, relative. `verdict`: near
    or far. `staleness_distance`: of the distribution, total variation; the mean over the seeds.
    `staleness_p`: least p of a seed, times their number. `staleness_verdict`: alike, or apart if
    that is at most SIZE.
    """
    columns = ["kind", *tables.axes, *_NUMBERS, *_STALENESS]
    if "free_images_per_second" not in tables.predictions:
        return pd.DataFrame(columns=columns)
    found = tables.predictions.set_index("key").drop(columns=["kind", "cluster"])
    runs = tables.runs.join(found.add_prefix("predicted_"), on="key", how="inner")
    runs = runs[runs["kind"] == "paced"].dropna(subset=["images_per_second"])
    rows = [each | _numbers(points) for each, points in configurations(runs, tables.axes)]
    return pd.DataFrame(rows, columns=columns)


def _numbers(points: Frame) -> Row:
    images = points["workers"] * points["batch_size"]  # of all workers' steps
    free = images / points["predicted_free_images_per_second"]
    real, predicted = (
        (images / points[rate].astype(float) - free).mean()
        for rate in ("images_per_second", "predicted_images_per_second")
    )
    error = predicted / real - 1
    near = abs(error) <= EXCHANGE_NEAR
    half = points["predicted_half"].iloc[0]
    numbers = (half, len(points), real, predicted, error, "near" if near else "far")
    return dict(zip(_NUMBERS, numbers, strict=True)) | _staleness(points)


def _staleness(points: Frame) -> Row:
    p = points["predicted_staleness_p"].astype(float)
    if p.isna().all():
        return dict.fromkeys(_STALENESS)
    least = min(1.0, len(p) * p.min())
    distance = points["predicted_staleness_distance"].astype(float).mean()
    verdict = "apart" if least <= SIZE else "alike"
    return dict(zip(_STALENESS, (distance, least, verdict), strict=True))
