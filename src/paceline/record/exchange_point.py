"""A point of a study of exchanges: one collective, one vector, real processes and no training."""

from dataclasses import dataclass
from typing import Any, cast

from paceline.cluster.cluster import AbstractCluster
from paceline.errors import SettingError
from paceline.exchange.find_collective import collective as check_collective
from paceline.record.point_config import PointConfig
from paceline.scheme.rule import AbstractScheme
from paceline.scheme.sync_allreduce import SyncAllReduce
from paceline.settings import Positive, Whole, settings

_NUMBER = 4  # bytes of a float32


@settings("exchange")
class Exchange:
    """Vector of `megabytes` (10^6 bytes) that is exchanged in each of `turns` turns."""

    megabytes: Positive
    turns: Whole


@dataclass(frozen=True)
class ExchangePoint:
    """An exchange of a vector [length] of float32 among `workers` by a collective, in turns."""

    config: PointConfig
    cluster: AbstractCluster
    collective: str
    workers: int
    length: int
    turns: int

    @classmethod
    def of(cls, config: PointConfig) -> "ExchangePoint":
        """Build and check every part. Raises SettingError for the first invalid setting."""
        exchange = _exchange(config.values.get("exchange"))
        workers = config.values["workers"]
        if not isinstance(workers, int) or workers < 2:
            raise SettingError("workers", f"an exchange needs at least 2, not {workers}")
        length = int(exchange.megabytes * 1e6 / _NUMBER)
        if not length:
            raise SettingError("exchange.megabytes", f"not a whole number of {_NUMBER} bytes")
        scheme = config.target("scheme").build_as(AbstractScheme)
        cluster = config.target("cluster").build_as(AbstractCluster)
        _check(scheme, cluster, workers)
        return cls(config, cluster, scheme.collective, workers, length, exchange.turns)

    @property
    def num_bytes(self) -> int:
        return self.length * _NUMBER


def _exchange(values: object) -> Exchange:
    if not isinstance(values, dict):
        message = "{megabytes: ..., turns: ...} is needed"
        raise SettingError("exchange", message)
    return Exchange(**cast("dict[str, Any]", values))


def _check(scheme: AbstractScheme, cluster: AbstractCluster, workers: int) -> None:
    check_collective(scheme.collective)
    if not isinstance(scheme, SyncAllReduce):
        message = "exchanges are those of sync_allreduce, by scheme.collective"
        raise SettingError("scheme", message)
    if scheme.compression != "none":
        raise SettingError("scheme.compression", "exchanges are of whole numbers; it must be none")
    if cluster.kind == "virtual":
        raise SettingError("cluster", "exchanges are measured between real processes, not virtual")
    cluster.check(scheme, workers)
