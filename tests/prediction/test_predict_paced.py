"""Paced points on a modelled cluster: what it takes over of them."""

import pytest

from paceline.cluster.virtual import VirtualCluster
from paceline.prediction.predict_points import UNEVENNESS, emulating, run_of
from paceline.record.target import Target
from paceline.study.compose import composed

PACED = ("data=synthetic", "batch_size=4", "cluster.step_seconds=0.1", "workload=sized")
PACED += ("workload.num_bytes=1000000", "cluster.accelerator=cpu", "training.samples=800")


def settings_of(root, *overrides):
    return composed([*PACED, *overrides], root)


@pytest.mark.parametrize("profile", ["virtual", "this_machine", "two_cores_small_cnn"])
def test_every_modelled_machine_can_emulate_links(root, profile):
    """What a profile leaves out has its default."""
    config = settings_of(root, "cluster=shaped_nodes", "workers=4", "cluster.workers_per_node=2")
    modelled = dict(composed([f"cluster={profile}", "data=synthetic"], root).values["cluster"])
    modelled["node_cores"] = modelled["node_cores"] or 2
    cluster = Target("cluster", emulating(modelled, config.values["cluster"], 4)).build()
    assert isinstance(cluster, VirtualCluster)
    assert cluster.link.bandwidth == config.values["cluster"]["link"]["bandwidth"]
    assert cluster.link.unevenness == UNEVENNESS
    assert cluster.workers_per_node == 2
    assert cluster.node_cores == modelled["node_cores"] / 2
    made = run_of(config, emulating(modelled, config.values["cluster"], 4), 800)
    assert made.images_per_second > 0


def test_messages_cost_what_they_cost_among_all_workers(root):
    """Three nodes share the cores: costs are those of 6 workers, half of the way from 4 to 8."""
    config = settings_of(root, "cluster=shaped_nodes", "workers=6", "cluster.workers_per_node=2")
    modelled = dict(composed(["cluster=this_machine", "data=synthetic"], root).values["cluster"])
    modelled |= {"message_seconds": {4: 1.0, 8: 3.0}, "message_bandwidth": {}}
    cluster = Target("cluster", emulating(modelled, config.values["cluster"], 6)).build()
    profile = cluster.profile
    assert profile.core_seconds(1, 0, workers=2) == 2 / profile.node_cores
    by_byte = 100 / profile.node_link.bandwidth
    assert profile.core_seconds(0, 100, workers=2) == by_byte / profile.node_cores
