"""A record on another network: its times, and a record of them, are those of a training there."""

import json
import shutil

import pytest
import torch
import yaml

from paceline.errors import SettingError
from paceline.prediction.retime import key_without_times, retime
from paceline.record.record import attempts, records_in
from tests.command_line import run
from tests.made_records import rows_of
from tests.small_study import STUDY, write_small_study
from tests.test_command_line import UNLOGGED
from tests.tiny import point_of, tiny_point

WALL = {
    "started",
    "wall_seconds",
    "launch_seconds",
    "real_seconds",
    "real_images_per_second",
    "peak_rss_bytes",
}
FREE = ()
LINKED = ("cluster.link.latency=0.01", "cluster.link.bandwidth=2e6", "cluster.step_seconds=0.25")
NETWORKS = {"own": LINKED, "nin": (*LINKED, "workload=nin")}  # by what is sent
EVERYWHERE = ("cluster.step_jitter=0.3", "cluster.workers_per_node=2", "cluster.accelerator=cpu")
SETTINGS = {
    "batch_size": 10,
    "workers": 5,
    "save_weights": True,
    "training": {"epochs": 1, "ema_decay": 0.99},
    "measurement": STUDY["measurement"] | {"evaluations": 3, "curve_images": 50},
}
SCHEMES = ("sync_allreduce", "local_sgd")


def swept(root, study, network, *schemes):
    """Lines of the sweep of a study on one network."""
    axes = {"scheme": ",".join(schemes)}
    write_small_study(root, study, axes, cluster="virtual", **SETTINGS)
    code, lines, errors = run(root, "sweep", study, *EVERYWHERE, *network)
    assert (code, errors) == (0, [])
    return lines


def folders(runs):
    """Folder of the one attempt of each record of a study, by its scheme."""
    tried = (attempt for record in records_in(runs) for attempt in attempts(record))
    found = [attempt for attempt in tried if (attempt / "result.json").exists()]
    return {result(folder)["scheme"]: folder for folder in found}


def result(folder):
    return json.loads((folder / "result.json").read_text())


def table(folder, name):
    """Rows of a table without real seconds, numbers as such."""
    rows = rows_of(folder / f"{name}.csv")
    return [{n: number(v) for n, v in row.items() if n != "real_seconds"} for row in rows]


def number(cell):
    try:
        return float(cell)
    except ValueError:
        return cell


@pytest.fixture(scope="module")
def here(root):
    """Folders of the records of trainings without a network, by scheme."""
    swept(root, "here", FREE, *SCHEMES, "gossip")
    return folders(root / "runs/here")


@pytest.fixture(scope="module", params=NETWORKS)
def networked(root, here, request):
    """Folders of trainings on a network, those of a sweep that had `here`, and its lines."""
    network = NETWORKS[request.param]
    (root / "runs/here").rename(root / "here")  # so that there is nothing to retime
    swept(root, "there", network, *SCHEMES)
    shutil.rmtree(root / "reports/there")  # whose archive the next would unpack
    (root / "runs/there").rename(root / request.param)
    (root / "here").rename(root / "runs/here")
    study = f"again_{request.param}"
    lines = swept(root, study, network, *SCHEMES, "gossip")
    return folders(root / request.param), folders(root / "runs" / study), lines


@pytest.mark.slow
def test_only_what_does_not_depend_on_time_is_retimed(here, networked):
    _, records, lines = networked
    retimed = [line for line in lines if "retimed from" in line]
    keys = [here[scheme].parent.name for scheme in SCHEMES]
    assert [line.split()[-1] for line in retimed] == keys
    assert {name for name in records if "retimed_from" in result(records[name])} == set(SCHEMES)
    assert [line for line in lines if line.endswith(": 3 points: 3 finished")]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_number_but_real_seconds_is_that_of_a_training(here, networked, scheme):
    trained, retimed, source = networked[0][scheme], networked[1][scheme], here[scheme]
    assert retimed.parent.name == trained.parent.name != source.parent.name
    ours, theirs = result(retimed), result(trained)
    assert ours.pop("retimed_from") == source.parent.name
    assert "retimed_from" not in theirs
    assert (ours.pop("study"), theirs.pop("study")) == (retimed.parents[1].name, "there")
    assert list(ours) == list(theirs)
    assert {n: v for n, v in ours.items() if n not in WALL} == {
        n: v for n, v in theirs.items() if n not in WALL
    }
    for name in ("curve", "staleness", "phases", "timeline"):
        assert table(retimed, name) == table(trained, name)
    assert table(retimed, "curve") != table(source, "curve")
    assert table(retimed, "phases") != table(source, "phases")
    weights = [torch.load(folder / "weights.pt") for folder in (retimed, trained)]
    assert all(weights[0][name].equal(weights[1][name]) for name in weights[0])
    config = yaml.safe_load((retimed / "config.yaml").read_text())
    assert (config["study"], config["cluster"]["step_seconds"]) == (retimed.parents[1].name, 0.25)


def virtual(scheme="sync_allreduce", workers=4, **settings):
    return point_of(tiny_point(scheme, workers, 4, cluster="virtual", **settings))


def test_a_cluster_leaves_the_key_of_what_it_trains_on():
    key = key_without_times(virtual().config)
    for setting, value in (("link__latency", 0.5), ("step_jitter", 0.5), ("overlap", False)):
        assert key_without_times(virtual(**{f"cluster__{setting}": value}).config) == key
    assert key_without_times(virtual(cluster__threads_per_worker=2).config) != key
    assert key_without_times(virtual(training__lr=0.01).config) != key
    assert key_without_times(virtual(workers=2).config) != key


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


def trained(root, *settings):
    """Folder of a record."""
    words = (*UNLOGGED, "workers=2", "study=retimed", *ON_ONE, *settings)
    code, lines, errors = run(root, "train", *words)
    assert (code, errors) == (0, [])
    return root / lines[-1].split()[-1]


def test_what_has_no_times_to_change_is_refused(root):
    """But a run without evaluations has an empty curve."""
    unseen = trained(root, "measurement.evaluations=0").parent.name
    assert retime(unseen, ON_NODES, root) == []
    gossip = trained(root, "scheme=gossip").parent.name
    for key, setting, overrides in (
        ("0123456789ab", "record", ON_NODES),
        (gossip, "cluster", ON_NODES),  # in another order
        (unseen, "cluster", (*ON_NODES, "cluster.step_jitter=0")),
        (unseen, "workers", (*ON_NODES, "workers=4")),
        (unseen, "cluster", ("cluster=local",)),
    ):
        with pytest.raises(SettingError) as error:
            retime(key, overrides, root)
        assert error.value.setting == setting


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_command_tells_the_times_of_a_training_there(root, here, networked, scheme):
    """Without a record of them."""
    source, there = here[scheme], networked[0][scheme]
    network = yaml.safe_load((there / "config.yaml").read_text())["cluster"]["link"]
    words = [f"cluster.link.{name}={value}" for name, value in network.items() if value]
    words += ["cluster=virtual", *EVERYWHERE, "cluster.step_seconds=0.25"]
    words += NETWORKS["nin"][len(LINKED) :] if "nin" in there.parts[-3] else []
    found = retime(source.parent.name, words, root)
    before, after = ([row["seconds"] for row in table(each, "curve")] for each in (source, there))
    assert [row.before for row in found] == before
    assert [row.seconds for row in found] == pytest.approx(after, abs=1e-4)
    code, lines, _ = run(root, "predict", "--record", source.parent.name, *words)
    assert (code, lines[-1].startswith("retimed virtual")) == (0, True)
