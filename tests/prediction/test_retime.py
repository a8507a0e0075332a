"""A record on another cluster: its times are those of a run that trains there."""

import pytest
import torch

from paceline.errors import SettingError
from paceline.prediction.retime import retime
from tests.command_line import run
from tests.made_records import rows_of
from tests.test_command_line import UNLOGGED

ON_ONE = ("cluster=virtual", "cluster.step_jitter=0.2", "cluster.node_link.bandwidth=1e5")
ON_NODES = (
    "cluster=virtual",
    "cluster.step_jitter=0.2",
    "cluster.step_seconds=0.25",
    "cluster.workers_per_node=1",
    "cluster.link.latency=0.01",
    "cluster.link.bandwidth=2e6",
    "workload=nin",
)
SCHEMES = {
    "sync_allreduce": ("scheme=sync_allreduce", "scheme.collective=tree"),
    "local_sgd": ("scheme=local_sgd", "scheme.period=3"),
}


def trained(root, *settings):
    """Folder of a record, with its weights."""
    common = (*UNLOGGED, "workers=2", "save_weights=true", "study=retimed")
    code, lines, errors = run(root, "train", *common, *settings)
    assert (code, errors) == (0, [])
    return root / lines[-1].split()[-1]


def curve(folder):
    rows = rows_of(folder / "curve.csv")
    return [(int(row["samples"]), float(row["seconds"])) for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
def test_times_are_those_of_a_run_that_trains_there(root, scheme):
    here = trained(root, *ON_ONE, *SCHEMES[scheme])
    there = trained(root, *ON_NODES, *SCHEMES[scheme])
    assert curve(here) != curve(there)
    found = retime(here.parent.name, ON_NODES, root)
    assert [row.before for row in found] == [seconds for _, seconds in curve(here)]
    assert [(row.samples, pytest.approx(row.seconds, abs=1e-4)) for row in found] == curve(there)
    ours, theirs = (torch.load(folder / "weights.pt") for folder in (here, there))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    code, lines, _ = run(root, "predict", "--record", here.parent.name, *ON_NODES)
    assert code == 0
    assert lines[-1].startswith("retimed virtual")
    refused(root, here.parent.name, "cluster.step_jitter", *ON_NODES, "cluster.step_jitter=0")
    refused(root, here.parent.name, "workers", *ON_NODES, "workers=4")
    refused(root, here.parent.name, "cluster", "cluster=local")


def refused(root, key, setting, *overrides):
    with pytest.raises(SettingError) as error:
        retime(key, overrides, root)
    assert error.value.setting == setting


def test_what_depends_on_time_is_refused(root):
    folder = trained(root, *ON_ONE, "scheme=gossip")
    refused(root, folder.parent.name, "scheme", *ON_NODES)


def test_a_run_without_evaluations_has_an_empty_curve(root):
    folder = trained(root, *ON_ONE, "measurement.evaluations=0", "save_weights=false")
    assert retime(folder.parent.name, ON_NODES, root) == []


def test_a_record_that_there_is_not_is_named(root):
    refused(root, "0123456789ab", "record", *ON_NODES)
