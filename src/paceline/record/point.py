"""A point: one training run, that is one configuration of the settings with one seed.

Its settings are checked once, when the point is built; its parts are typed objects.
"""

from paceline.clock.reports import SERVED_PRECISIONS
from paceline.cluster.cluster import AbstractCluster, Device, Kind
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
        slow, counts = self.cluster.slow_workers, Counts(self.scheme, self.workers)
        if slow > self.workers:
            message = f"{slow}, but there are {self.workers} workers"
            raise SettingError("cluster.slow_workers", message)
        self.training.check(counts, self.model)
        if self.placement.shuffle_every and not counts.can_meet:
            name = self.config.names["scheme"]
            message = f"it needs a time at which all workers meet; scheme={name} has none"
            raise SettingError("data.shuffle_every", message)
        check_collective(self.scheme.collective)
        self.cluster.check(self.scheme, self._num_computing)
        if self.sharding.shards > 1:
            self._check_split()
        self.cluster.check_workload(self.workload)
        self._check_pace()
        self._check_sharding()
        if not self.cluster.carried_out_by_ddp(self.scheme):  # DDP clips the mean itself
            counts.check_clipping(self.training.gradient_clip_val)
        self._check_precision()
        self._check_checkpoints()
        self._check_evaluations()

    def _check_evaluations(self) -> None:
        """Raise SettingError for what needs the scores of evaluated weights, if there are none."""
        values = self.config.values
        searched = values.get("trial") is not None or self.config.is_tuned
        for needs, of in ((self.save_weights, "save_weights"), (searched, "a search for a rate")):
            if needs and not self.measurement.evaluations:
                message = f"{of} needs at least 1"
                raise SettingError("measurement.evaluations", message)

    def _check_split(self) -> None:
        """Raise SettingError for what split workers cannot have."""
        scheme, training, modelled = self.scheme, self.training, self.kind == "virtual"
        precision = training.precision
        foreign = self.workload.name != OWN
        shares = self.device == "cuda" and self.cluster.workers_per_accelerator > 1
        part = "each process knows only a part of the norm, so that it"
        for setting, is_set, what, neutral in (
            ("data.shuffle_every", self.placement.shuffle_every is not None, "it", "null"),
            ("scheme.collective", scheme.collective != "native", scheme.collective, "native"),
            ("scheme.compression", scheme.compression != "none", scheme.compression, "none"),
            ("cluster.workers_per_accelerator", shares, "a shared GPU", "1"),
            ("training.gradient_clip_val", training.gradient_clip_val is not None, part, "null"),
            ("training.precision", precision not in SERVED_PRECISIONS, precision, "32-true"),
            ("workload", foreign and not modelled, f"the size of {self.workload.name}", "own"),
        ):
            if is_set:
                message = f"{what} is not possible with split workers; model.shards=1 is needed"
                raise SettingError(setting, f"{message}, or {neutral}")
        if modelled:
            self.cluster.check_shards(self.workers, self.sharding.shards)
            if foreign:
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

    def _check_checkpoints(self) -> None:
        """Raise SettingError if the point's real processes cannot write checkpoints."""
        if self.training.checkpoint_seconds is None or self.kind == "virtual":
            return
        if self.sharding.shards > 1:
            message = "split workers write no checkpoints; null is needed"
            raise SettingError("training.checkpoint_seconds", message)

    def _check_precision(self) -> None:
        precision = self.training.precision
        by_ddp = self.cluster.carried_out_by_ddp(self.scheme)
        if not by_ddp and precision not in SERVED_PRECISIONS:
            known, name = ", ".join(SERVED_PRECISIONS), self.config.names["scheme"]
            message = f"{precision!r} is not possible with scheme={name}; there are: {known}"
            raise SettingError("training.precision", message)
        if precision == "16-mixed" and self.device == "cpu":
            raise SettingError("training.precision", "16-mixed needs a GPU; bf16-mixed does not")
