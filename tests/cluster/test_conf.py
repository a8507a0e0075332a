"""Every file of conf/cluster: its keys, that it can be modelled, and where its numbers are from."""

import itertools
import re
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from paceline.cluster.virtual import VirtualCluster
from paceline.record.target import Target
from paceline.study.compose import composed

CONF = Path(__file__).parents[2] / "conf"
FILES = sorted(path.stem for path in (CONF / "cluster").glob("*.yaml"))
PUBLISHED = ("minotauro", "titan", "four_titans", "minsky")
WALL = [
    "_target_",
    "accelerator",
    "threads_per_worker",
    "timeout_seconds",
    "step_seconds",
    "step_jitter",
    "slow_workers",
    "slow_factor",
    "straggler_probability",
    "straggler_factor",
    "server_seconds",
]
VIRTUAL = [*WALL, "server_bandwidth", "workers_per_node", "node_cores", "link", "node_link"]
MODELLED = re.compile(
    r"\s*(step_seconds|step_jitter|server_\w+|workers_per_node|node_cores|latency|bandwidth): [^n]"
)
EPOCH = 1_281_167  # training images of ImageNet-1k
DAY = 24 * 60 * 60


def settings_of(name):
    return composed([f"cluster={name}", "data=synthetic"], CONF.parent).values["cluster"]


def cluster_of(name):
    return Target("cluster", settings_of(name)).build()


def is_modelled(name):
    return isinstance(cluster_of(name), VirtualCluster)


@pytest.mark.parametrize("name", FILES)
def test_every_file_has_every_key_in_the_same_order(name):
    """What a kind of cluster has alone comes last; this_machine alone sets what has a default."""
    keys = VIRTUAL if is_modelled(name) else WALL
    found, own = list(settings_of(name)), fields(cluster_of(name))
    assert found[: len(keys)] == keys
    asked = {field.name for field in own if field.default is MISSING}
    optional = {"allreduce_link"} if name == "this_machine" else set()
    assert set(found) - {"_target_"} == asked | optional


@pytest.mark.parametrize("name", [name for name in FILES if is_modelled(name)])
def test_a_virtual_cluster_can_be_modelled(name):
    cluster = cluster_of(name)
    assert cluster.kind == "virtual"
    assert cluster.profile.num_nodes(8) in (1, 2, 8)
    assert cluster.step_times(32, seed=0).seconds(0, 0) > 0


def test_a_step_of_the_abstract_cluster_takes_a_second_and_all_else_nothing():
    cluster = cluster_of("virtual")
    profile = cluster.profile
    assert cluster.step_times(32, seed=0).seconds(3, 5) == 1
    assert profile.link.seconds(1e12) == profile.node_link.seconds(1e12) == 0
    assert profile.server_seconds + 1e12 / profile.server_bandwidth == 0


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_modelled_number_says_where_it_is_from(name):
    """On its line or on the one above; `null` and 0 need no source."""
    lines = (CONF / f"cluster/{name}.yaml").read_text().splitlines()
    for above, line in itertools.pairwise(lines):
        if MODELLED.match(line) and not line.endswith(": 0"):
            assert "#" in line or above.lstrip().startswith("#"), line


@pytest.mark.parametrize(
    ("name", "setting", "published"),
    [
        # images of a batch / images per second of one GPU
        ("minotauro", "step_seconds.32", 32 / 49.5),
        ("titan", "step_seconds.32", 32 / (64 * EPOCH / (21 * DAY))),
        ("four_titans", "step_seconds.256", 256 / (100 * EPOCH / (10.5 * DAY))),
        ("minsky", "step_seconds.64", 64 / (EPOCH / 224 / 32)),
        # bits or bytes per second
        ("minotauro", "link.bandwidth", 56e9 / 8),
        ("titan", "link.bandwidth", 5.2e9),
        ("minsky", "link.bandwidth", 100e9 / 8),
        # 240 MB in what is lost beside half of one GPU's time, at batch 256
        ("four_titans", "node_link.bandwidth", 240e6 * 100 * EPOCH / (256 * (7 - 5.25) * DAY)),
        # GPUs in a node
        ("minotauro", "workers_per_node", 4),
        ("titan", "workers_per_node", 1),
        ("four_titans", "workers_per_node", None),
        ("minsky", "workers_per_node", 4),
    ],
)
def test_published_numbers(name, setting, published):
    value = settings_of(name)
    for part in setting.split("."):
        value = value[int(part) if part.isdigit() else part]
    assert value == (published if published is None else pytest.approx(published, rel=0.01))


def test_other_networks_in_comments():
    """NiN on Titan, GoogLeNet-BN on Minsky."""
    titan, minsky = ((CONF / f"cluster/{name}.yaml").read_text() for name in ("titan", "minsky"))
    assert float(re.search(r"step_seconds=(\S+) batch_size=256", titan)[1]) == pytest.approx(
        256 * 5.8 * DAY / (47 * EPOCH), rel=0.01
    )
    assert float(re.search(r"step_seconds=(\S+) batch_size=64", minsky)[1]) == pytest.approx(
        64 * 32 * 155 / EPOCH, rel=0.01
    )
