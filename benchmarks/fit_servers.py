"""Fits the server of conf/cluster/base/compute_engine.yaml to published steps/s: `python -m
benchmarks.fit_servers` (four minutes).

With one worker all is done one after the other, so that the step of each network follows from the
steps/s of one worker and the time of its messages. The two numbers of the server have the least
squares of log(predicted / published) over all other numbers of workers.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from paceline.prediction.predict import timed_run
from paceline.record.point import Point
from paceline.record.point_config import PointConfig
from paceline.study.compose import composed
from papers.published import entries, published_rows

STEPS = 200  # as for the predictions of published numbers
FITTED: Sequence[str] = ("server_tensor_seconds", "server_copy_bandwidth")
Curve = Sequence[tuple[PointConfig, float]]  # of one GPU and network: one worker, then more


def curves(root: Path) -> Mapping[str, Curve]:
    known = published_rows(root)
    found = dict[str, list[tuple[PointConfig, float]]]()
    for entry in entries(root):
        if entry.row.startswith("G/one-server/"):
            config = composed(entry.settings, root)
            name = " ".join(entry.settings[:2])
            found.setdefault(name, []).append((config, float(known[entry.row]["value"])))
    return found


def steps_per_second(config: PointConfig, cluster: Mapping[str, Any]) -> float:
    point = Point.of(config.replaced(cluster={**config.values["cluster"], **cluster}))
    return timed_run(point, STEPS).images_per_second / point.batch_size


def step_of(curve: Curve, server: Mapping[str, Any]) -> float:
    """Return the seconds of a step without its messages, which with them gives the first rate."""
    config, rate = curve[0]
    alone = {**server, "step_seconds": 1.0, "step_jitter": 0}
    return 1 / rate - (1 / steps_per_second(config, alone) - 1)


def errors(logarithms: np.ndarray, found: Mapping[str, Curve]) -> np.ndarray:
    """Return log(predicted / published) [curves, numbers of workers]."""
    server = dict(zip(FITTED, np.exp(logarithms).tolist(), strict=True))
    rows = []
    for curve in found.values():
        step = max(1e-6, step_of(curve, server))
        rates = [steps_per_second(c, {**server, "step_seconds": step}) for c, _ in curve]
        rows.append([math.log(r / value) for r, (_, value) in zip(rates, curve, strict=True)])
    return np.array(rows)


def main() -> None:
    found = curves(Path.cwd())
    fit = least_squares(
        lambda x: errors(x, found)[:, 1:].ravel(), np.log([6.6e-5, 1.9e9]), diff_step=0.02
    )
    server = dict(zip(FITTED, np.exp(fit.x).tolist(), strict=True))
    print("  ".join(f"{name}: {value:.3g}" for name, value in server.items()))
    relative = np.expm1(errors(fit.x, found))
    for (name, curve), row in zip(found.items(), relative, strict=True):
        step = step_of(curve, server)
        print(f"{name}: {step / 128:.4g} s an image;", *(f"{100 * e:+.0f} %" for e in row))
    sizes = np.abs(relative[:, 1:])
    print(f"median {100 * np.median(sizes):.1f} %, worst {100 * sizes.max():.1f} %")


if __name__ == "__main__":
    main()
