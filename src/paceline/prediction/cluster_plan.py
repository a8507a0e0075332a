"""Plans training on a modelled cluster: which scheme, how many workers, which batch size.

Candidates are timed on the virtual clock, and judged by what studies found on accuracy. A candidate
is recommended only if its accuracy is shown to stay within what may be lost (FireCaffe's first
rule, arXiv:1511.00175: a speed-up counts only at equal accuracy). Another scheme than all-reduce,
which every framework has, is recommended only if a study of a comparable network and of as many
workers shows it.

The intervals of two predictions overlap more than is right for a comparison, since both share the
errors of one model. Candidates are therefore compared by the ratio of their times, and RATIO says
how far predicted ratios were off.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from paceline.cluster.virtual import VirtualCluster
from paceline.data.image_set import AbstractImageData
from paceline.errors import SettingError
from paceline.prediction.evidence import LONGEST_EXCHANGE, TUNED, Change, Evidence
from paceline.prediction.network_by_size import with_network
from paceline.prediction.predict import Prediction, predict, sized_workload
from paceline.record.point import Point
from paceline.record.point_config import PointConfig
from paceline.timing.profile import Link
from paceline.timing.workload import CountedNetwork

REFERENCE, ASYNCHRONOUS = "sync_allreduce", "async_parameter_server"
RATIO = 1.25  # within which 90 % of predicted ratios of two schemes were; a test derives it anew
KEPT, UNCLEAR, LOWER, NOT_STUDIED = "kept", "may be lower", "lower", "not studied"
IMAGENET = 1_281_167  # training images of ImageNet-1k
_STEPS = 12  # of each worker, from which times are predicted
_LEAST_POWER = 5  # of two: a batch of 32
_NEARLY = 0.95  # of the most images/s: a larger batch is not worth its larger updates
_NEAR = 0.005  # difference of expected top-1 below which tied candidates are alike
_MOST_MESSAGES = 4096  # that all workers push at once, in an example of many servers
_COUNTED = ("servers", "sharding", "collective")  # settings that leave accuracy alone


@dataclass(frozen=True)
class Question:
    """Cluster, network and budget for which a plan is asked, and what may be lost.

    `config`: configuration with the most workers. `workers`, `batch_sizes`: numbers to choose from.
    `schemes`: by the name of each scheme, all-reduce as well, its settings by those that studies
    chose, as text. `compared`: names of schemes to compare. `images`: training images of an epoch.
    `allowed`: share of top-1 that may be lost against one worker. `own_scheme`: True if the user
    set what changes a scheme's accuracy, so that no study supports it.
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


@dataclass(frozen=True, eq=False)  # each is made once
class Candidate:
    """A scheme with a number of workers and a batch size.

    `seconds`: predicted time of the whole budget. `change`: expected change of top-1 against one
    worker; None if no study supports one. `verdict`: one of KEPT, UNCLEAR, LOWER, NOT_STUDIED.
    `comparable`: False for another scheme than all-reduce, if no study of it had a comparable
    network and as many workers.
    """

    prediction: Prediction
    seconds: float
    change: Change | None
    verdict: str
    comparable: bool = True

    @property
    def scheme(self) -> str:
        return self.prediction.point.config.names["scheme"]

    @property
    def workers(self) -> int:
        return self.prediction.point.workers

    @property
    def kind(self) -> tuple[str, int]:
        return self.scheme, self.workers

    @property
    def interval(self) -> tuple[float, float] | None:
        """Interval of `seconds`; None if there is none of the images/s."""
        rate, ends = self.prediction.run.images_per_second, self.prediction.interval
        return ends and (self.seconds * rate / ends[1], self.seconds * rate / ends[0])

    @property
    def proven(self) -> bool:
        """True for what may be recommended."""
        return self.verdict == KEPT and self.comparable


@dataclass(frozen=True)
class ClusterPlan:
    """Answer: the candidate that is recommended, the next one, and all that were timed.

    `refused`: why a scheme cannot have the workers or servers, by its name.
    """

    question: Question
    chosen: Candidate
    runner_up: Candidate | None
    candidates: Sequence[Candidate]
    refused: Mapping[str, str]


def plan_cluster(question: Question) -> ClusterPlan:
    """Time the candidates and choose one. Raises SettingError for what cannot be predicted.

    One worker is always a candidate, so that there is one that keeps the accuracy. Schemes with
    servers are tried with the most workers, and with as many as are best for all-reduce.
    """
    timed, refused = cache(partial(candidate, question)), dict[str, str]()
    batches = {n: _best_batch(question, n, timed) for n in {1, *question.workers}}

    def tried(scheme: str, counts: Sequence[int]) -> list[Candidate]:
        """Time a scheme with each of these numbers of workers that it can have."""
        found = list[Candidate]()
        for workers in counts:
            try:
                found.append(timed(scheme, workers, batches[workers]))
            except SettingError as error:
                if len(question.compared) == 1 or not error.setting.startswith("scheme"):
                    raise
                refused[scheme] = error.message
        return found

    found = [timed(REFERENCE, 1, batches[1])]
    first_settings = {name: next(iter(known.values())) for name, known in question.schemes.items()}
    quick = [  # to time in any case; with many servers a prediction takes seconds
        scheme
        for scheme in question.compared
        if scheme == question.compared[0] or "servers" not in first_settings[scheme]
    ]
    for scheme in quick:
        found += tried(scheme, question.workers)
    best = max(recommended(found).workers, min(question.workers))
    for scheme in question.compared:
        counts = () if scheme in quick else sorted({max(question.workers), best})
        found += tried(scheme, [n for n in counts if worthwhile(question, scheme, n, batches[n])])
    found = list(dict.fromkeys(found))
    chosen = recommended(found)
    others = [each for each in found if each.proven and each.kind != chosen.kind]
    return ClusterPlan(question, chosen, recommended(others) if others else None, found, refused)


def recommended(candidates: Sequence[Candidate]) -> Candidate:
    """Return the candidate to use.

    Of those that are proven to keep the accuracy, of which one is needed, it is the fastest. Of
    those that are tied with it in time, and of nearly the best expected accuracy among them,
    all-reduce comes first, since it needs no servers and every framework has it.
    """
    proven = [each for each in candidates if each.proven]
    fastest = min(each.seconds for each in proven)
    tied = [each for each in proven if each.seconds <= RATIO * fastest]
    means = [each.change.mean for each in tied if each.change]
    near = [each for each in tied if each.change and each.change.mean >= max(means) - _NEAR]
    return min(near, key=lambda each: (each.scheme != REFERENCE, each.seconds))


def candidate(question: Question, scheme: str, workers: int, batch_size: int) -> Candidate:
    """Time a candidate and judge its accuracy."""
    settings = settings_of(question, scheme, workers, batch_size)
    names = {**question.config.names, "scheme": scheme}
    config = question.config.replaced(
        scheme=settings, names=names, workers=workers, batch_size=batch_size
    )
    several = settings.get("servers", 0) > 1  # whose messages take long to model
    prediction = predict(config, _STEPS // 2 if several else _STEPS)
    training, evidence = prediction.point.training, question.evidence
    seconds = training.samples or training.epochs * question.images
    seconds /= prediction.run.images_per_second
    change = change_of(question, prediction)
    comparable = scheme == REFERENCE or workers == 1
    if evidence is not None and not comparable:
        num_weights = weight_bytes(prediction.point) // 4
        comparable = evidence.comparable(scheme, num_weights, workers)
    judged = verdict(change, question.allowed)
    return Candidate(prediction, seconds, change, judged, comparable)


def verdict(change: Change | None, allowed: float) -> str:
    """Judge an expected change of top-1, of which the share `allowed` may be lost."""
    if change is None:
        return NOT_STUDIED
    return KEPT if change.low >= -allowed else LOWER if change.high < -allowed else UNCLEAR


def change_of(question: Question, prediction: Prediction, rate: str = TUNED) -> Change | None:
    """Return the expected change of top-1 against one worker; None if it is not known.

    `rate`: as in Observed: "tuned", or the rule of the learning rate.
    """
    point, run, evidence = prediction.point, prediction.run, question.evidence
    if point.workers == 1:
        return Change(0.0, 0.0, 0.0)
    if evidence is None or question.own_scheme or exchange_of(point) > LONGEST_EXCHANGE:
        return None
    stale = run.mean_staleness if run.staleness else 0.0
    rounds = question.images / (point.workers * point.batch_size)
    return evidence.change(point.config.names["scheme"], rounds, stale, rate)


def exchange_of(point: Point) -> float:
    """Return how long an exchange takes for which no worker waits [steps of computing].

    The workers of a node share its link, each for as many bytes as the weights have. 0 if workers
    wait, since their accuracy does not depend on how long.
    """
    if point.scheme.beside(1, point.workers, 0, point.seed) is None:
        return 0.0
    cluster = cluster_of(point)
    profile, link, sharing = cluster.profile, cluster.node_link, 1
    if profile.num_nodes(point.workers) > 1:
        link, sharing = profile.link, profile.largest_node(point.workers)
    seconds = cluster.mean_step_seconds(point.batch_size, point.workload)
    assert seconds is not None
    return link.seconds(sharing * weight_bytes(point)) / seconds


def expected(question: Question, scheme: str, workers: int, batch_size: int) -> str:
    """Return the verdict on a scheme with the staleness that is usual for so many workers."""
    if question.evidence is None:
        return NOT_STUDIED
    stale = question.evidence.staleness(scheme, workers)
    rounds = question.images / (workers * batch_size)
    return verdict(question.evidence.change(scheme, rounds, stale), question.allowed)


def worthwhile(question: Question, scheme: str, workers: int, batch_size: int) -> bool:
    """Return True if a scheme with servers is to be timed: if its accuracy is expected to be kept.

    Asynchronous SGD is timed, too, as an example of what staleness costs, if that is known and if
    it takes no longer than seconds.
    """
    found = expected(question, scheme, workers, batch_size)
    if question.evidence is None or found == KEPT:
        return True
    if found == NOT_STUDIED or scheme != ASYNCHRONOUS:
        return False
    servers = settings_of(question, scheme, workers, batch_size)["servers"]
    return workers * servers <= _MOST_MESSAGES


def settings_of(question: Question, scheme: str, workers: int, batch_size: int) -> dict[str, Any]:
    """Return a scheme's settings as studied at so many rounds of an epoch, with its servers."""
    known, studied = question.schemes[scheme], ""
    if question.evidence:
        studied = question.evidence.settings(scheme, question.images / (workers * batch_size))
    settings = dict(known.get(studied) or next(iter(known.values())))
    if settings.get("servers") == 0:
        settings["servers"] = servers_for(question, workers, batch_size)
    return settings


def servers_for(question: Question, workers: int, batch_size: int) -> int:
    """Return the fewest servers that handle all messages while workers compute.

    The messages are the pushes of gradients and the answers with weights. Their links need the time
    that the lemma of Zou 2017 has; between nodes a server's own work may need more.
    """
    point = Point.of(question.config)
    cluster, workload = cluster_of(point), sized_workload(point)
    seconds = cluster.mean_step_seconds(batch_size, point.workload)
    assert seconds is not None
    (name, link), profile, size = link_of(question), cluster.profile, workload.message_bytes(1, 1)
    needed = servers_needed(size, workers, link.bandwidth, seconds)
    if name == "link":
        messages = profile.server_message_seconds(len(workload.sizes_of_tensors), size)
        push = profile.server_seconds + 2 * messages + size / profile.server_bandwidth
        needed = max(needed, math.ceil(workers * push / seconds))
    return min(workers, needed)


def servers_needed(num_bytes: float, workers: int, bandwidth: float, seconds: float) -> int:
    """Return the fewest servers whose links can transfer all messages while workers compute, by the
    lemma of Zou 2017 (doi 10.1007/978-3-319-69179-4_2), derived without the paper's text.

    The messages are the pushes of gradients to servers and the answers with weights. `num_bytes`:
    bytes of all weights. `bandwidth`: bytes/s of a server's link. `seconds`: time that a worker
    computes between two pushes.
    """
    return max(1, math.ceil(2 * num_bytes * workers / (bandwidth * seconds) * (1 - 1e-9)))


def link_of(question: Question) -> tuple[str, Link]:
    """Return the name of the link over which workers exchange, and the link."""
    profile = cluster_of(Point.of(question.config)).profile
    inside = profile.num_nodes(max(question.workers)) == 1
    return ("node_link", profile.node_link) if inside else ("link", profile.link)


def cluster_of(point: Point) -> VirtualCluster:
    assert isinstance(point.cluster, VirtualCluster)
    return point.cluster


def weight_bytes(point: Point) -> int:
    """Return the bytes of the network's weights."""
    return sized_workload(point).message_bytes(1, 1)


def _best_batch(question: Question, workers: int, timed: Callable[..., Candidate]) -> int:
    """Return the smallest batch size with nearly the most images/s, by all-reduce.

    Batch sizes with which accuracy is kept come first, and of these the ones that were measured.
    If accuracy is kept with none, the smallest is best.
    """
    if len(question.batch_sizes) == 1:
        return question.batch_sizes[0]
    found = {size: timed(REFERENCE, workers, size) for size in question.batch_sizes}
    kept = [size for size, one in found.items() if one.verdict == KEPT]
    known = [size for size in kept if not found[size].prediction.extrapolated]
    sizes = known or kept or question.batch_sizes[:1]
    rates = {size: found[size].prediction.run.images_per_second for size in sizes}
    return min(size for size in sizes if rates[size] >= _NEARLY * max(rates.values()))


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
    rate = cluster_of(point).rate_of(point.workload)
    if rate is None:
        return [point.batch_size]
    least, most = rate.batch_sizes
    powers = (2**n for n in range(_LEAST_POWER, most.bit_length()))
    return sorted({least, *powers, most})
