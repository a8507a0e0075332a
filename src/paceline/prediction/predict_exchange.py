"""Seconds of an exchange by the cost model of its collective, on a modelled cluster."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from paceline.cluster.virtual import VirtualCluster
from paceline.exchange.find_collective import collective
from paceline.prediction.predict_paced import emulating
from paceline.prediction.predict_points import profile_of
from paceline.record.exchange_point import ExchangePoint
from paceline.record.target import Target
from paceline.study.compose import composed


def exchange_predictor(root: Path) -> Callable[[ExchangePoint], float | None]:
    """Return a function that predicts the seconds of a point, as its study's `predicted_by` asks.

    It returns None where the study names no modelled cluster. Between emulated nodes the links are
    those of the point itself. Nobody computes, so that only messages take time.
    """
    clusters = dict[str, Mapping[str, Any]]()

    def predict(exchange: ExchangePoint) -> float | None:
        if not exchange.config.values.get("predicted_by"):
            return None
        name = profile_of(exchange.config)
        if name not in clusters:
            clusters[name] = composed([f"cluster={name}"], root).values["cluster"]
        own = exchange.config.values["cluster"]
        modelled = emulating(clusters[name], own, exchange.workers)
        cluster = Target("cluster", modelled).build_as(VirtualCluster)
        profile = replace(cluster.profile, shared_cores=None)
        chosen = collective(exchange.collective)
        return chosen.seconds(exchange.num_bytes, exchange.workers, profile)

    return predict
