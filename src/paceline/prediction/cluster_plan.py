"""Plans training on a modelled cluster: which scheme, how many workers, which batch size.

Candidates are timed on the virtual clock, and judged by what studies found on accuracy. A candidate
is recommended only if its accuracy is shown to stay within what may be lost (FireCaffe's first
rule, arXiv:1511.00175: a speed-up counts only at equal accuracy).

The intervals of two predictions overlap more than is right for a comparison, since both share the
errors of one model. Candidates are therefore compared by the ratio of their times, and RATIO says
how far predicted ratios were off.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from paceline.cluster.virtual import VirtualCluster
from paceline.data.image_set import AbstractImageData
from paceline.errors import SettingError
from paceline.prediction.evidence import BY_RULE, LONGEST_EXCHANGE, TUNED, Change, Evidence
from paceline.prediction.lemma import servers_needed
from paceline.prediction.network_by_size import with_network
from paceline.prediction.predict import Prediction, predict, sized_workload
from paceline.record.point import Point
from paceline.record.point_config import PointConfig
from paceline.timing.profile import Link
from paceline.timing.workload import AbstractWorkload, CountedNetwork

REFERENCE, ASYNCHRONOUS = "sync_allreduce", "async_parameter_server"
RATIO = 1.25  # within which 90 % of predicted ratios of two schemes were; a test derives it anew
KEPT, UNCLEAR, LOWER, NOT_STUDIED = "kept", "may be lower", "lower", "not studied"
# the most that traces of training on GPUs show; docs/simulate_and_predict.md
SLOW, JITTER = 2.4, 0.14
IMAGENET = 1_281_167  # training images of ImageNet-1k
_STEPS = 12  # of each worker, from which times are predicted
_LEAST_POWER = 5  # of two: a batch of 32
_NEARLY = 0.95  # of the most images/s: a larger batch is not worth its larger updates
_NEAR = 0.005  # difference of expected top-1 below which tied candidates are alike
MOST_TIMES = 256  # by which links are slowed down at most, to find when the answer changes
_TO = 1.2  # times, the bandwidth at which the answer changes
_MOST_CONTENDERS = 2
_MOST_MESSAGES = 4096  # that all workers push at once, in an example of many servers
_COUNTED = ("servers", "sharding", "collective")  # settings that leave accuracy alone


@dataclass(frozen=True, eq=False)  # each is made once
class Candidate:
    """A scheme with a number of workers and a batch size.

    `seconds`: predicted time of the whole budget. `change`: expected change of top-1 against one
    worker; None if no study supports one. `verdict`: one of KEPT, UNCLEAR, LOWER, NOT_STUDIED.
    """

    prediction: Prediction
    seconds: float
    change: Change | None
    verdict: str

    @property
    def scheme(self) -> str:
        return self.prediction.point.config.names["scheme"]

    @property
    def workers(self) -> int:
        return self.prediction.point.workers

    @property
    def batch_size(self) -> int:
        return self.prediction.point.batch_size

    @property
    def kind(self) -> tuple[str, int]:
        return self.scheme, self.workers

    @property
    def interval(self) -> tuple[float, float] | None:
        """Interval of `seconds`; None if there is none of the images/s."""
        rate, ends = self.prediction.run.images_per_second, self.prediction.interval
        return ends and (self.seconds * rate / ends[1], self.seconds * rate / ends[0])

    @property
    def accelerator_hours(self) -> float:
        return self.seconds * self.workers * self.prediction.point.sharding.shards / 3600

    @property
    def kept(self) -> bool:
        return self.verdict == KEPT


class Flip(NamedTuple):
    """Answer under changed circumstances: the best candidate, and the plan's own choice."""

    best: Candidate
    own: Candidate
    bandwidth: float = 0.0


@dataclass(frozen=True)
class Question:
    """Cluster, network and budget for which a plan is asked, and what may be lost.

    `config`: configuration with the most workers. `workers`, `batch_sizes`: numbers to choose from.
    `schemes`: by the name of each scheme, all-reduce as well, its settings by those that studies
    chose, as text. `compared`: names of schemes to compare. `images`: training images of an epoch.
    `allowed`: share of top-1 that may be lost against one worker. `own_scheme`: True if the user
    set what changes a scheme's accuracy, so that no study supports it. `refused`: why a
    scheme cannot have the workers or servers, by its name.
    """

    config: PointConfig
    workers: Sequence[int]
    batch_sizes: Sequence[int]
    schemes: Mapping[str, Mapping[str, Mapping[str, Any]]]
    compared: Sequence[str]
    images: int
    allowed: float
    evidence: Evidence | None
    own_scheme: bool = False
    timed: dict[Any, Candidate] = field(default_factory=dict[Any, Candidate])
    refused: dict[str, str] = field(default_factory=dict[str, str])

    @cached_property
    def point(self) -> Point:
        return Point.of(self.config)

    @property
    def cluster(self) -> VirtualCluster:
        assert isinstance(self.point.cluster, VirtualCluster)
        return self.point.cluster

    @cached_property
    def workload(self) -> AbstractWorkload:
        return sized_workload(self.point)

    @property
    def weight_bytes(self) -> int:
        return self.workload.message_bytes(1, 1)

    @property
    def samples(self) -> float:
        """Images of the budget."""
        training = self.point.training
        return training.samples or training.epochs * self.images

    @property
    def link(self) -> tuple[str, Link]:
        """Link over which workers exchange, and its name: between nodes, or inside the only one."""
        profile = self.cluster.profile
        inside = profile.num_nodes(max(self.workers)) == 1
        return ("node_link", profile.node_link) if inside else ("link", profile.link)

    def rounds(self, workers: int, batch_size: int) -> float:
        """Return the rounds of an epoch; see the module `evidence`."""
        return self.images / (workers * batch_size)

    def is_quick(self, scheme: str) -> bool:
        """Return True for schemes to time in any case: the first one, and those without servers.

        With many servers a prediction takes seconds.
        """
        first = next(iter(self.schemes[scheme].values()))
        return "servers" not in first or scheme == self.compared[0]

    def worthwhile(self, scheme: str, workers: int, batch_size: int) -> bool:
        """Return True if a scheme is to be timed: one that is quick to time, or whose accuracy is
        expected to be kept.

        Asynchronous SGD is timed, too, as an example of what staleness costs, if that is known
        and if it takes no longer than seconds.
        """
        if self.evidence is None or self.is_quick(scheme):
            return True
        verdict = self.expected(scheme, workers, batch_size)
        if verdict == NOT_STUDIED or scheme != ASYNCHRONOUS:
            return verdict == KEPT
        return workers * self._settings(scheme, workers, batch_size)["servers"] <= _MOST_MESSAGES

    def expected(self, scheme: str, workers: int, batch_size: int) -> str:
        """Return the verdict on a scheme with the staleness that is usual for so many workers."""
        if self.evidence is None:
            return NOT_STUDIED
        stale = self.evidence.staleness(scheme, workers)
        change = self.evidence.change(scheme, self.rounds(workers, batch_size), stale)
        return _verdict(change, self.allowed)

    def candidate(self, scheme: str, workers: int, batch_size: int, **cluster: Any) -> Candidate:
        """Return a candidate. `cluster`: settings of the cluster that are changed."""
        key = scheme, workers, batch_size, repr(cluster)
        if key not in self.timed:
            self.timed[key] = self._timed(scheme, workers, batch_size, cluster)
        return self.timed[key]

    def like(self, other: Candidate, **cluster: Any) -> Candidate:
        return self.candidate(other.scheme, other.workers, other.batch_size, **cluster)

    def _timed(
        self, scheme: str, workers: int, batch_size: int, cluster: Mapping[str, Any]
    ) -> Candidate:
        values, settings = self.config.values, self._settings(scheme, workers, batch_size)
        config = self.config.replaced(
            scheme=settings,
            names={**values["names"], "scheme": scheme},
            cluster={**values["cluster"], **cluster},
            workers=workers,
            batch_size=batch_size,
        )
        several = settings.get("servers", 0) > 1  # whose messages take long to model
        prediction = predict(config, _STEPS // 2 if several else _STEPS)
        seconds = self.samples / prediction.run.images_per_second
        change = self.change(prediction)
        return Candidate(prediction, seconds, change, _verdict(change, self.allowed))

    def _settings(self, scheme: str, workers: int, batch_size: int) -> dict[str, Any]:
        """Return the settings of a scheme: those that were studied at so many rounds of an epoch,
        with the number of servers.
        """
        rounds, known = self.rounds(workers, batch_size), self.schemes[scheme]
        studied = self.evidence.settings(scheme, rounds) if self.evidence else ""
        settings = dict(known.get(studied) or next(iter(known.values())))
        if settings.get("servers") == 0:
            settings["servers"] = self.servers(workers, batch_size)
        return settings

    def servers(self, workers: int, batch_size: int) -> int:
        """Return the fewest servers that handle all messages while workers compute.

        The messages are the pushes of gradients and the answers with weights. Their links need the
        time that the lemma of Zou 2017 has; between nodes a server's own work may need more.
        """
        cluster, profile = self.cluster, self.cluster.profile
        seconds = cluster.mean_step_seconds(batch_size, self.point.workload)
        assert seconds is not None
        size, tensors = self.weight_bytes, len(self.workload.sizes_of_tensors)
        needed = servers_needed(size, workers, self.link[1].bandwidth, seconds)
        if self.link[0] == "link":
            own = (
                2 * profile.server_message_seconds(tensors, size) + size / profile.server_bandwidth
            )
            needed = max(needed, math.ceil(workers * (profile.server_seconds + own) / seconds))
        return min(workers, needed)

    def change(self, prediction: Prediction, rate: str = TUNED) -> Change | None:
        """Return the expected change of top-1 against one worker; None if it is not known.

        `rate`: as training.rate, by which studies chose the learning rate.
        """
        point, run = prediction.point, prediction.run
        if point.workers == 1:
            return Change(0.0, 0.0, 0.0)
        if self.evidence is None or self.own_scheme or self.exchange(point) > LONGEST_EXCHANGE:
            return None
        stale = run.mean_staleness if run.staleness else 0.0
        rounds = self.rounds(point.workers, point.batch_size)
        return self.evidence.change(point.config.names["scheme"], rounds, stale, rate)

    def exchange(self, point: Point) -> float:
        """Return how long an exchange takes for which no worker waits [steps of computing].

        The workers of a node share its link, each for as many bytes as the weights have. 0 if
        workers wait, since their accuracy does not depend on how long.
        """
        if point.scheme.beside(1, point.workers, 0, point.seed) is None:
            return 0.0
        assert isinstance(point.cluster, VirtualCluster)
        profile, link, sharing = point.cluster.profile, point.cluster.node_link, 1
        if profile.num_nodes(point.workers) > 1:
            link, sharing = profile.link, profile.largest_node(point.workers)
        seconds = point.cluster.mean_step_seconds(point.batch_size, point.workload)
        assert seconds is not None
        return link.seconds(sharing * self.weight_bytes) / seconds

    def of_one_worker(self, batch_size: int) -> str:
        """Return the verdict on updates of so many images by one worker.

        Those that are as large as studies made with several workers count as these.
        """
        rounds, evidence = self.rounds(1, batch_size), self.evidence
        if evidence is None or rounds >= max(row.rounds for row in evidence.observed):
            return KEPT
        return _verdict(evidence.change(REFERENCE, rounds), self.allowed)


@dataclass(frozen=True)
class ClusterPlan:
    """Answer: the candidate that is recommended, the next one, and all that are shown.

    `slower`: with which links another candidate would clearly be faster; None if none would be.
    `slow_worker`, `jitter`: what changes if one worker takes SLOW times as long, and if the times
    of steps vary by JITTER; None with one worker, and if it is so already.
    """

    question: Question
    chosen: Candidate
    runner_up: Candidate | None
    candidates: Sequence[Candidate]
    slower: Flip | None
    slow_worker: Flip | None
    jitter: Flip | None

    @property
    def ratio(self) -> float:
        """Time of the runner-up, divided by that of the choice."""
        assert self.runner_up is not None
        return self.runner_up.seconds / self.chosen.seconds

    @property
    def tied(self) -> bool:
        return 1 / RATIO <= self.ratio <= RATIO

    @property
    def not_timed(self) -> dict[str, str]:
        """Schemes that were asked for, or studied, and that no candidate has, each with the reason
        for which it was refused, or the verdict on its accuracy with the most workers.
        """
        question, most = self.question, max(self.question.workers)
        timed = {each.scheme for each in self.candidates}
        sizes = (each.batch_size for each in self.candidates if each.workers == most)
        size = next(sizes, self.chosen.batch_size)
        return {
            scheme: question.refused.get(scheme) or question.expected(scheme, most, size)
            for scheme in question.compared
            if scheme not in timed
        }

    @property
    def by_rule(self) -> str:
        """Verdict on the accuracy if the learning rate follows the linear rule."""
        change = self.question.change(self.chosen.prediction, BY_RULE)
        return _verdict(change, self.question.allowed)


def plan_cluster(question: Question) -> ClusterPlan:
    """Time the candidates and choose one. Raises SettingError for what cannot be predicted.

    One worker is always a candidate, so that there is one that keeps the accuracy. Schemes with
    servers are tried with the most workers, and with as many as are best for all-reduce.
    """
    most = max(question.workers)
    batches = {workers: _best_batch(question, workers) for workers in {1, *question.workers}}
    found = [question.candidate(REFERENCE, 1, batches[1])]
    quick = [scheme for scheme in question.compared if question.is_quick(scheme)]
    with_servers = [scheme for scheme in question.compared if scheme not in quick]
    for scheme in quick:
        for workers in question.workers:
            found += _possible(question, scheme, workers, batches[workers])
    for workers in sorted({most, max(recommended(found).workers, min(question.workers))}):
        for scheme in with_servers:
            if question.worthwhile(scheme, workers, batches[workers]):
                found += _possible(question, scheme, workers, batches[workers])
    chosen = recommended(found)
    for workers in question.workers if chosen.workers > 1 else ():
        found += _possible(question, chosen.scheme, workers, batches[workers])
    found = list(dict.fromkeys(found))
    chosen = recommended(found)
    others = [each for each in found if each.kept and each.kind != chosen.kind]
    contenders = sorted(others, key=lambda each: each.seconds)[:_MOST_CONTENDERS]
    among, several = [chosen, *contenders], chosen.workers > 1
    slow = {"slow_workers": 1, "slow_factor": SLOW}
    even, steady = not question.cluster.slow_workers, question.cluster.step_jitter < JITTER
    return ClusterPlan(
        question,
        chosen,
        recommended(others) if others else None,
        found,
        _slower_links(question, among) if several else None,
        _changed(question, among, **slow) if several and even else None,
        _changed(question, among, step_jitter=JITTER) if several and steady else None,
    )


def recommended(candidates: Sequence[Candidate]) -> Candidate:
    """Return the candidate to use.

    Of those that keep the accuracy, of which one is needed, it is the fastest. Of those that are
    tied with it in time, and of nearly the best expected accuracy among them, all-reduce comes
    first, since it needs no servers and every framework has it.
    """
    kept = [each for each in candidates if each.kept]
    fastest = min(each.seconds for each in kept)
    tied = [each for each in kept if each.seconds <= RATIO * fastest]
    means = [each.change.mean for each in tied if each.change]
    near = [each for each in tied if each.change and each.change.mean >= max(means) - _NEAR]
    return min(near, key=lambda each: (each.scheme != REFERENCE, each.seconds))


def _verdict(change: Change | None, allowed: float) -> str:
    if change is None:
        return NOT_STUDIED
    return KEPT if change.low >= -allowed else LOWER if change.high < -allowed else UNCLEAR


def _best_batch(question: Question, workers: int) -> int:
    """Return the smallest batch size with nearly the most images/s, by all-reduce.

    Batch sizes with which accuracy is kept come first, and of these the ones that were measured.
    If accuracy is kept with none, the smallest is best.
    """
    if len(question.batch_sizes) == 1:
        return question.batch_sizes[0]
    each = [question.candidate(REFERENCE, workers, size) for size in question.batch_sizes]
    kept = [one for one in each if one.kept]
    known = [one for one in kept if not one.prediction.extrapolated] or kept or each[:1]
    most = max(one.prediction.run.images_per_second for one in known)
    enough = (one for one in known if one.prediction.run.images_per_second >= _NEARLY * most)
    return min(one.batch_size for one in enough)


def _possible(question: Question, scheme: str, workers: int, size: int) -> Iterator[Candidate]:
    """Yield the candidate, unless a scheme cannot have so many workers."""
    try:
        yield question.candidate(scheme, workers, size)
    except SettingError as error:
        if len(question.compared) == 1 or not error.setting.startswith("scheme"):
            raise
        question.refused[scheme] = error.message


def _changed(question: Question, among: Sequence[Candidate], **cluster: Any) -> Flip:
    changed = [question.like(each, **cluster) for each in among]
    return Flip(recommended(changed), changed[0])


def _slower_links(question: Question, among: Sequence[Candidate]) -> Flip | None:
    """Return the largest bandwidth, to _TO, at which another one of `among` is clearly faster, or
    at which the accuracy of the choice is not known.
    """
    name, link = question.link
    values = question.config.values["cluster"][name]
    if len(among) == 1 or math.isinf(link.bandwidth):
        return None

    def at(times: float) -> Flip | None:
        bandwidth = link.bandwidth / times
        changed = [
            question.like(each, **{name: {**values, "bandwidth": bandwidth}}) for each in among
        ]
        own, kept = changed[0], [each for each in changed if each.kept]
        best = min(kept, key=lambda each: each.seconds, default=own)
        clear = not own.kept or own.seconds > RATIO * best.seconds
        return Flip(best, own, bandwidth) if clear else None

    low, high, found = 1.0, 2.0, at(2)
    while not found and high < MOST_TIMES:  # what was faster may not be known with slower links
        low, high, found = high, 2 * high, at(2 * high)
    while found and high / low > _TO:
        middle = math.sqrt(low * high)
        if there := at(middle):
            high, found = middle, there
        else:
            low = middle
    return found


def scheme_settings(name: str, studied: str, own: Mapping[str, Any], root: Path) -> dict[str, Any]:
    """Return the settings of a scheme.

    `studied`: settings of studies, such as scheme.backup_workers=1. `own`: the user's. A scheme
    with servers has 0 of them, for as many as are needed, unless the user said how many.
    """
    path = root / "conf/scheme" / f"{name}.yaml"
    text = path if path.is_file() else files("paceline.conf") / f"scheme/{name}.yaml"
    values = yaml.safe_load(text.read_text())
    if "servers" in values:
        values["servers"] = 0
    for each in studied.split():
        setting, _, value = each.partition("=")
        values[setting.partition(".")[2]] = yaml.safe_load(value)
    return values | {key: own[key] for key in own if key in values}


def changes_accuracy(own: Mapping[str, Any]) -> bool:
    """Return True if settings of a scheme, by name, may change its accuracy."""
    return bool(own.keys() - set(_COUNTED))


def images_of(point: Point) -> int:
    """Return the training images of an epoch.

    A counted network of 1,000 classes, for images unlike those of the data, stands for ImageNet-1k.
    Raises SettingError("data") if the number is not known.
    """
    data = point.data.build_as(AbstractImageData) if point.data.is_ours else None
    network = point.workload if isinstance(point.workload, CountedNetwork) else None
    shape = tuple(network.image_shape) if network else None
    if data is not None and shape in (None, data.image_shape) and data.num_training_images:
        return data.num_training_images
    classes = network.num_classes if network else data.num_classes if data else 0
    if classes == 1000:
        return IMAGENET
    message = "how many training images it has is not known; say it, as in data=synthetic "
    message += "data.num_train=1000000, with data.num_classes and data.image_shape of the network"
    raise SettingError("data", message)


def fitting(config: PointConfig, sizes: Sequence[int]) -> list[int]:
    """Return the batch sizes whose step fits into the memory of the accelerator, if it is known.

    Raises SettingError("batch_size") if none fits.
    """
    fits = list[int]()
    for size in sorted(sizes):
        try:
            with_network(config.replaced(batch_size=size))
            fits.append(size)
        except SettingError as error:
            if error.setting != "batch_size" or not fits:
                raise
    return fits


def covered_batches(config: PointConfig) -> list[int]:
    """Return the batch sizes that were measured at the ends, and powers of two up to the larger.

    If none were measured, return the batch size that is set.
    """
    point = Point.of(config)
    assert isinstance(point.cluster, VirtualCluster)
    rate = point.cluster.rate_of(point.workload)
    if rate is None:
        return [point.batch_size]
    least, most = rate.batch_sizes
    powers = (2**n for n in range(_LEAST_POWER, most.bit_length()))
    return sorted({least, *powers, most})
