"""A point: one resolved configuration with one seed, checked once, typed from then on."""

from dataclasses import dataclass
from typing import Annotated, Any, cast

from pydantic import Field

from paceline.clock.clipping import check_clipping
from paceline.clock.served_weights import SERVED_PRECISIONS
from paceline.cluster.cluster import AbstractCluster, Device, Kind
from paceline.data.placement import Placement
from paceline.errors import SettingError
from paceline.exchange.find_collective import check_compression
from paceline.exchange.find_collective import collective as check_collective
from paceline.model.network_size import Sharding
from paceline.record.measurement import Measurement
from paceline.record.point_config import STUDY_NAME, PointConfig
from paceline.record.rerun import Sweep
from paceline.record.target import Target
from paceline.record.training import Training
from paceline.scheme.accounting import Accounting
from paceline.scheme.rule import AbstractScheme
from paceline.scheme.sync_allreduce import SyncAllReduce
from paceline.settings import Count, Positive, Seed, Whole, settings
from paceline.timing.workload import OWN, AbstractWorkload


@settings("")
class Point:
    """One training run: what is trained, on which data and cluster, and how it is measured.

    `batch_size`: images per worker and step. `repeat`: 0, or which time the same is done again, in
    a block of a study. `model` and `data` are built in each process.
    `config`: the configuration from which the point was built; it names the point and is written
    to its record.
    """

    study: Annotated[str, Field(pattern=STUDY_NAME)]
    workers: Whole
    batch_size: Whole
    seed: Seed
    repeat: Count
    save_weights: bool
    scheme: AbstractScheme
    cluster: AbstractCluster
    workload: AbstractWorkload
    training: Training
    measurement: Measurement
    sweep: Sweep
    model: Target
    sharding: Sharding
    data: Target
    placement: Placement
    config: PointConfig

    @classmethod
    def of(cls, config: PointConfig) -> "Point":
        """Build and check every part. Raises SettingError for the first invalid setting."""
        values = config.values
        if values.get("exchange"):
            message = "its points are no trainings; paceline sweep STUDY measures them"
            raise SettingError("exchange", message)
        point = cls(
            scheme=config.target("scheme").build_as(AbstractScheme),
            cluster=config.target("cluster").build_as(AbstractCluster),
            workload=config.target("workload").build_as(AbstractWorkload),
            training=config.target("training").build_as(Training),
            measurement=config.measurement,
            sweep=config.sweep,
            study=values["study"],
            workers=values["workers"],
            batch_size=values["batch_size"],
            seed=values["seed"],
            repeat=values.get("repeat", 0),  # a record may be of before there was one
            save_weights=values["save_weights"],
            model=config.target("model"),
            sharding=Sharding(**config.of_the_run("model")),
            data=config.data,
            placement=config.placement,
            config=config,
        )
        point._check()
        return point

    def check_packages(self) -> None:
        """Raise SettingError for a class of model or data that cannot be here."""
        self.model.check()
        self.data.check()

    @property
    def kind(self) -> Kind:
        """Kind of the numbers in the point's record."""
        return self.cluster.kind

    @property
    def num_processes(self) -> tuple[int, int]:
        """Number of processes that train, and of those that serve."""
        return self.cluster.num_processes(self.scheme, self._num_computing)

    @property
    def device(self) -> Device:
        """Device on which all workers compute."""
        return self.cluster.device(self.scheme, self._num_computing)

    @property
    def _num_computing(self) -> int:
        """Number of processes of all workers, real or modelled."""
        return self.workers * self.sharding.shards

    def _check(self) -> None:
        """Raise SettingError for parts that cannot be combined."""
        _ = self.config.margin, self.config.asked_target  # a study's, but of any point's settings
        if self.data.is_ours:
            self.data.build()  # each process builds its own; here only its settings are checked
        if self.cluster.slow_workers > self.workers:
            message = f"{self.cluster.slow_workers}, but there are {self.workers} workers"
            raise SettingError("cluster.slow_workers", message)
        self.training.check(Accounting(self.scheme, self.workers), self.model)
        self._check_placement()
        self._check_collective()
        self.cluster.check(self.scheme, self._num_computing)
        if self.sharding.shards > 1:
            self._check_split()
        self.cluster.check_workload(self.workload)
        self._check_sharding()
        if not self.cluster.carried_out_by_ddp(self.scheme):  # DDP clips the mean itself
            check_clipping(self.training.gradient_clip_val, self.scheme, self.workers)
        self._check_precision()
        self._check_checkpoints()

    def _check_placement(self) -> None:
        self.placement.check_workers(self.workers)
        meeting = self.placement.meeting
        if meeting and not Accounting(self.scheme, self.workers).can_meet:
            name = self.config.names["scheme"]
            message = f"all workers must meet for it, which those of scheme={name} do not"
            raise SettingError(meeting, message)

    def _check_split(self) -> None:
        """Raise SettingError for what split workers cannot have."""
        split = "by split workers; model.shards=1 is needed, or"
        if self.placement.meeting:
            neutral = "null" if self.placement.shuffle_every else "own"
            raise SettingError(self.placement.meeting, f"it cannot be honoured {split} {neutral}")
        if self.scheme.collective != "native":
            message = f"{self.scheme.collective} cannot be honoured {split} native"
            raise SettingError("scheme.collective", message)
        if self.scheme.compression != "none":
            message = f"{self.scheme.compression} cannot be honoured {split} none"
            raise SettingError("scheme.compression", message)
        if self.scheme.overlap:
            raise SettingError("scheme.overlap", f"it cannot be honoured {split} false")
        if self.training.gradient_clip_val is not None:
            message = f"each process knows a part of the norm: it cannot be honoured {split} null"
            raise SettingError("training.gradient_clip_val", message)
        if self.training.precision not in SERVED_PRECISIONS:
            message = f"{self.training.precision} cannot be honoured {split} 32-true"
            raise SettingError("training.precision", message)
        if self.kind == "virtual":
            self._check_modelled_split()
        elif self.workload.name != OWN:
            message = f"messages of {self.workload.name} cannot be sent {split} own"
            raise SettingError("workload", message)

    def _check_modelled_split(self) -> None:
        self.cluster.check_shards(self.workers, self.sharding.shards)
        if self.workload.name != OWN:
            self.workload.split_step(self.sharding, self.batch_size)

    def _check_collective(self) -> None:
        check_collective(self.scheme.collective)
        check_compression(self.scheme.compression, self.scheme.collective)

    def _check_sharding(self) -> None:
        if self.scheme.sharding == "bytes" or self.workload.name == OWN:
            return
        if self.kind != "virtual":
            message = "real messages are filled up by one tensor, which workload="
            message += f"{self.workload.name} has not: bytes is needed"
            raise SettingError("scheme.sharding", message)
        tensors = self.workload.sizes_of_tensors
        if tensors and self.scheme.servers > len(tensors):
            message = f"{self.scheme.servers} servers, and {len(tensors)} tensors of the workload"
            raise SettingError("scheme.servers", message)

    def _check_checkpoints(self) -> None:
        """Raise SettingError for checkpoints of real processes that cannot stop together."""
        if self.training.checkpoint_seconds is None or self.kind == "virtual":
            return
        without = ""
        if self.scheme.compression == "power_sgd":
            without = "scheme.compression=power_sgd, which keeps errors,"
        elif self.sharding.shards > 1:
            without = "split workers"
        if without:
            message = f"{without} write no checkpoints; null is needed"
            raise SettingError("training.checkpoint_seconds", message)

    def _check_precision(self) -> None:
        precision = self.training.precision
        by_ddp = self.cluster.carried_out_by_ddp(self.scheme)
        if not by_ddp and precision not in SERVED_PRECISIONS:
            known, name = ", ".join(SERVED_PRECISIONS), self.config.names["scheme"]
            message = f"{precision!r} cannot be honoured for scheme={name}; there are: {known}"
            raise SettingError("training.precision", message)
        if precision == "16-mixed" and self.device == "cpu":
            raise SettingError("training.precision", "16-mixed needs a GPU; bf16-mixed does not")


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
