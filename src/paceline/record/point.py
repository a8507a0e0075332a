"""A point: one training run, that is one configuration of the settings with one seed.

Its settings are checked once, when the point is built; its parts are typed objects.
"""

from collections.abc import Mapping, Sequence

from paceline.clock.reports import SERVED_PRECISIONS, check_served_precision
from paceline.cluster.cluster import AbstractCluster, Device, Kind
from paceline.cluster.torchrun import TorchrunCluster
from paceline.data.image_set import AbstractImageData
from paceline.data.placement import Placement
from paceline.errors import SettingError
from paceline.exchange.collectives import collective as check_collective
from paceline.model.network_size import Sharding
from paceline.record.measurement import Measurement
from paceline.record.point_config import PointConfig
from paceline.record.rerun import Sweep
from paceline.record.target import Target
from paceline.record.training import Training
from paceline.scheme.counts import Counts
from paceline.scheme.rule import AbstractScheme
from paceline.settings import Flag, Positive, Seed, Whole, settings
from paceline.timing.workload import OWN, AbstractWorkload

# Values that settings may have beside split networks, the usual one first: a process of a split
# worker knows only a part of the gradient and its norm.
_BESIDE_SPLIT: Mapping[str, Sequence[object]] = {
    "data.shuffle_every": (None,),
    "scheme.collective": ("native",),
    "scheme.compression": ("none",),
    "cluster.workers_per_accelerator": (1,),
    "training.gradient_clip_val": (None,),
    "training.precision": SERVED_PRECISIONS,
}
_BESIDE_REALLY_SPLIT: Mapping[str, Sequence[object]] = {
    **_BESIDE_SPLIT,
    "training.checkpoint_seconds": (None,),
    "workload.name": ("own",),
}

# settings without a class
_PLAIN = ("study", "workers", "batch_size", "seed", "save_weights", "margin")


@settings("")
class Point:
    """One training run: what is trained, on which data and cluster, and how it is measured.

    `batch_size`: images per worker and step. `model` and `data` are settings, from which each
    process builds its own objects. `config`: the configuration from which the point was built; it
    has the point's key and is written to its record.
    """

    study: str
    workers: Whole
    batch_size: Whole
    seed: Seed
    save_weights: Flag
    margin: Positive
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
        point = cls.unchecked(config)
        point._check()
        return point

    @classmethod
    def unchecked(cls, config: PointConfig) -> "Point":
        """Build every part, without a check of what can be combined."""
        values = config.values
        return cls(
            scheme=config.target("scheme").build_as(AbstractScheme),
            cluster=config.target("cluster").build_as(AbstractCluster),
            workload=config.target("workload").build_as(AbstractWorkload),
            training=config.target("training").build_as(Training),
            measurement=config.measurement,
            sweep=config.sweep,
            **{name: values[name] for name in _PLAIN},
            model=config.target("model"),
            sharding=Sharding(**config.of_the_run("model")),
            data=config.target("data"),
            placement=Placement(**config.of_the_run("data")),
            config=config,
        )

    def check_packages(self) -> None:
        """Raise SettingError if the package of the model or of the data is not installed."""
        self.model.check()
        self.data.check()

    def require_data(self) -> None:
        """Raise SettingError if files of one of Paceline's data sets are missing."""
        if self.data.is_ours:
            self.data.build_as(AbstractImageData).require_files()

    @property
    def kind(self) -> Kind:
        """Kind of the numbers in the point's record."""
        return self.cluster.kind

    @property
    def num_processes(self) -> tuple[int, int]:
        """Number of training processes, and number of server processes."""
        return self.cluster.num_processes(self.scheme, self._num_computing)

    @property
    def device(self) -> Device:
        """Device on which all workers compute."""
        return self.cluster.device(self.scheme, self._num_computing)

    @property
    def server_device(self) -> Device:
        """Device on which the servers have their weights."""
        return self.cluster.device_of_servers(self.scheme, self._num_computing)

    @property
    def _num_computing(self) -> int:
        """Number of processes of all workers, real or modelled."""
        return self.workers * self.sharding.shards

    def _check(self) -> None:
        """Raise SettingError for parts that cannot be combined."""
        _ = self.config.asked_target  # reading it checks it
        if self.data.is_ours:
            self.data.build_as(AbstractImageData).check_unread(self.placement.store)
        counts, training = Counts(self.scheme, self.workers), self.training
        training.check(self.model)
        if training.momentum_correction != "none" and counts.becomes_stale:
            message = "a run has one momentum, and its gradients become stale on the way, by "
            raise SettingError("training.momentum_correction", message + repr(self.scheme))
        if self.placement.shuffle_every and not counts.can_meet:
            name = self.config.names["scheme"]
            message = f"it needs a time at which all workers meet; scheme={name} has none"
            raise SettingError("data.shuffle_every", message)
        check_collective(self.scheme.collective)
        if self.sweep.jobs > 1 and isinstance(self.cluster, TorchrunCluster):
            raise SettingError("sweep.jobs", "torchrun's processes carry out one run at a time")
        self.cluster.check(self.scheme, self._num_computing)
        if self.sharding.shards > 1:
            self._check_split()
        self.cluster.check_workload(self.workload)
        self._check_pace()
        self._check_sharding()
        if not self.cluster.carried_out_by_ddp(self.scheme):  # DDP clips the mean itself
            counts.check_clipping(training.gradient_clip_val)
            check_served_precision(training.precision, f"scheme={self.config.names['scheme']}")
        if training.precision == "16-mixed" and self.device == "cpu":
            raise SettingError("training.precision", "16-mixed needs a GPU; bf16-mixed does not")
        searched = self.config.values.get("trial") is not None or self.config.is_tuned
        if (self.save_weights or searched) and not self.measurement.evaluations:
            needs = "save_weights" if self.save_weights else "a search for a rate"
            raise SettingError("measurement.evaluations", f"{needs} needs at least 1")

    def _check_split(self) -> None:
        """Raise SettingError for what excludes split workers."""
        modelled = self.kind == "virtual"
        possible = _BESIDE_SPLIT if modelled else _BESIDE_REALLY_SPLIT
        for setting, values in possible.items():
            group, name = setting.split(".")
            value = getattr(self.placement if group == "data" else getattr(self, group), name)
            if value not in values:
                usual = "null" if values[0] is None else values[0]
                message = f"{value} is not possible with split workers; model.shards=1 is needed"
                raise SettingError(setting.removesuffix(".name"), f"{message}, or {usual}")
        if modelled:
            self.cluster.check_shards(self.workers, self.sharding.shards)
            if self.workload.name != OWN:
                self.workload.split_step(self.sharding, self.batch_size)

    def _check_pace(self) -> None:
        """Raise SettingError for steps during which a real process is silent for too long."""
        if self.kind == "virtual":
            return
        seconds = self.cluster.mean_step_seconds(self.batch_size, self.workload) or 0.0
        if self.cluster.slow_workers:
            seconds *= max(1.0, self.cluster.slow_factor)
        if seconds >= self.cluster.timeout_seconds:
            message = f"a step of {seconds:g} s is longer than the cluster.timeout_seconds of "
            message += f"{self.cluster.timeout_seconds:g} s, after which a process is killed"
            raise SettingError("cluster.step_seconds", message)

    def _check_sharding(self) -> None:
        if self.scheme.sharding == "bytes" or self.workload.name == OWN:
            return
        if self.kind != "virtual":
            message = f"workload={self.workload.name} sends its bytes as one tensor on a real "
            message += "cluster, which cannot be shared by tensors; bytes is needed"
            raise SettingError("scheme.sharding", message)
        tensors, servers = self.workload.sizes_of_tensors, self.scheme.servers
        if tensors and servers > len(tensors):
            message = f"{servers} servers for the {len(tensors)} tensors of the workload"
            raise SettingError("scheme.servers", message)
