"""Every combination of settings that cannot be honoured is named, before any process starts."""

import pytest

from paceline.errors import SettingError
from paceline.record.point import Point
from paceline.record.point_config import asked_target, is_virtual
from paceline.record.without_effect import on_cpu
from paceline.run.run_point import run_point
from paceline.study.compose import composed
from tests.tiny import REPOSITORY

CORRECTED = "training.momentum_correction=asynchrony"
BY_STALENESS = "training.lr_rule=inverse_staleness"
SERVED = "scheme=async_parameter_server"
DAMPED = f"{SERVED} scheme.damping=inverse_staleness"
SWITCHED = "scheme=sync_then_async workers=4 cluster=virtual"
REFUSED = {
    # what is no study, no group or no class
    "study=null": "study",
    "study=5": "study",
    f"study={'a' * 300}": "study",
    "question={a:1}": "question",
    "scheme=null": "scheme",
    "scheme=5": "scheme",
    "scheme._target_=paceline.scheme.gossip.Nothing": "scheme",
    "scheme._target_=builtins.dict": "scheme._target_",
    "data=null": "data",
    "cluster=": "cluster",
    "names.scheme=other": "names.scheme",
    "grids=5": "grids",
    "model.optimizer=null": "model.optimizer",
    # values of another kind, beside those of tests/test_settings.py
    "training.initial_weights=nowhere/weights.pt": "training.initial_weights",
    "training.milestones=[0.75,0.5]": "training.milestones",
    "training.milestones=[0.5,1.5]": "training.milestones",
    "training.milestones=[half]": "training.milestones",
    "scheme.collective=rumour": "scheme.collective",
    "measurement.mlflow.tracking_uri=''": "measurement.mlflow.tracking_uri",
    "target=0.85": "target",
    "target={metric:top1}": "target",
    "target={metric:top1,value:0.85,below_baseline:0.1}": "target",
    "target={metric:top2,value:0.85}": "target.metric",
    **{f"target={{metric:loss,value:{v}}}": "target.value" for v in (0, -1, "inf")},
    **{f"target={{metric:top1,value:{v}}}": "target.value" for v in (85, 0, "nan", "x", "true")},
    "target={metric:top1,below_baseline:-0.1}": "target.below_baseline",
    # too many for the scheme, the cluster or this machine
    "scheme=sync_parameter_server workers=4 scheme.backup_workers=4": "scheme.backup_workers",
    "scheme=mixed workers=4 scheme.group_size=3": "scheme.group_size",
    "cluster.threads_per_worker=1000000": "cluster.threads_per_worker",
    f"{SERVED} workers=100000": "workers",
    f"{SERVED} scheme.servers=100000": "scheme.servers",
    # what does not go together
    "cluster=torchrun sweep.jobs=2": "sweep.jobs",
    f"{SERVED} workers=2 data.shuffle_every=1": "data.shuffle_every",
    "cluster=virtual workers=2 training.gradient_clip_val=1": "training.gradient_clip_val",
    "cluster=virtual cluster.step_seconds=null": "cluster.step_seconds",
    "cluster=virtual training.precision=bf16-true": "training.precision",
    f"{CORRECTED} model.optimizer.momentum=1": "model.optimizer.momentum",
    f"{CORRECTED} model/optimizer=adagrad": "training.momentum_correction",
    f"{SWITCHED} {CORRECTED} scheme.switch_at=0.01": "training.momentum_correction",
    f"{SWITCHED} {CORRECTED} scheme.switch_at=0.99": "training.momentum_correction",
}
ALLOWED = [
    "cluster=virtual workers=100000",  # of one process
    "cluster=virtual training.gradient_clip_val=1",
    "workers=2 training.gradient_clip_val=1 training.gradient_clip_algorithm=value",  # by DDP
    "cluster=virtual cluster.step_seconds=1 training.checkpoint_seconds=60",
    "seed=4294967295 training.momentum=0 cluster.slow_workers=1",
    "measurement.mlflow.tracking_uri=null question=null",
    f"{SWITCHED} {CORRECTED} scheme.switch_at=0",
    f"{SWITCHED} {CORRECTED} scheme.switch_at=1",
    f"{SWITCHED} {BY_STALENESS} scheme.switch_at=0.5",
    f"scheme=post_local_sgd workers=4 {CORRECTED} scheme.switch_at=0.5",
    f"{SERVED} workers=4 {CORRECTED} {BY_STALENESS}",
    f"{DAMPED} workers=4 {CORRECTED} {BY_STALENESS}",  # both divide
    "cluster=virtual workers=2 cluster.slow_workers=99",  # all of them
    f"{SERVED} workers=4 {BY_STALENESS} scheme.damping=delay_compensation",
]


def point(words):
    settings = ("data=synthetic", "cluster.accelerator=cpu", "study=made study", *words.split(" "))
    return Point.of(composed([each for each in settings if each], REPOSITORY))


def refusal(words):
    try:
        point(words)
    except SettingError as error:
        return error.setting if "\n" not in str(error) else str(error)
    return None


def test_what_cannot_be_honoured_is_named_in_one_line():
    found = {words: refusal(words) for words in REFUSED}
    assert found == REFUSED
    assert [words for words in ALLOWED if refusal(words)] == []


def test_a_target_is_kept_as_asked():
    for name in ("value", "below_baseline"):
        for target in ({"metric": "loss", name: 1.5}, {"metric": "top5", name: 0.03}):
            assert asked_target(target) == target
    assert asked_target(None) is None


@pytest.mark.parametrize("setting", ["model", "model.network", "model.optimizer"])
def test_a_class_that_is_not_there_is_named_before_a_process_starts(setting):
    built = point(f"{setting}._target_=nope.a.Net")
    with pytest.raises(SettingError, match=rf"^{setting}\._target_: the package nope is not inst"):
        run_point(built)


def test_a_password_is_refused_and_not_repeated():
    for store in ("http://me:secret@host:5000", "postgresql://me:secret@host/mlflow"):
        with pytest.raises(SettingError, match=r"^measurement.mlflow.tracking_uri: ") as caught:
            point(f"measurement.mlflow.tracking_uri={store}")
        assert "secret" not in str(caught.value)


def test_the_warm_up_is_counted_in_epochs_and_the_schedule_in_the_budget():
    training = point("training.lr_rule=linear training.warmup_epochs=2").training
    rate = training.learning_rate(images_per_update=32, epoch=100, samples=1000)
    assert (rate.warmup_samples, rate.total_samples) == (200, 1000)


def put_gpus(monkeypatch, number):
    for module in ("cluster.cluster", "record.without_effect"):
        monkeypatch.setattr(f"paceline.{module}.num_gpus", lambda: number)


def test_more_workers_than_gpus(monkeypatch):
    """They are refused if GPUs were asked for; else the CPU trains them, and a line says so."""
    put_gpus(monkeypatch, 1)
    auto, gpu = "cluster.accelerator=auto", "cluster.accelerator=gpu"
    assert (point(auto).device, on_cpu(point(auto))) == ("cuda", "")
    two = point(f"{auto} workers=2")
    assert two.device == "cpu"
    assert on_cpu(two).startswith("cluster.accelerator: auto is the CPU for 2 workers")
    assert on_cpu(point("workers=2")) == ""
    with pytest.raises(SettingError, match=r"^workers: 2 workers .* has 1; .*accelerator=cpu, or"):
        point(f"{gpu} workers=2")
    shared = f"{gpu} cluster.workers_per_accelerator=2"
    assert point(f"{shared} workers=2").device == "cuda"
    with pytest.raises(SettingError, match=r"^workers: 3 workers need a GPU for each 2, .* has 1;"):
        point(f"{shared} workers=3")
    put_gpus(monkeypatch, 0)
    point(auto)
    with pytest.raises(SettingError, match=r"^workers: 1 workers need a GPU each, .* has 0;"):
        point(gpu)


WHERE = [
    (1, "gpu", "local", "auto", "cuda"),
    (1, "gpu", "local", "cpu", "cpu"),
    (1, "cpu", "local", "auto", "cpu"),
    (0, "auto", "local", "auto", "cpu"),
    (0, "auto", "local", "cuda", "this machine has no GPU"),
    (1, "cpu", "local", "cuda", "the workers compute on the CPU"),
    (1, "gpu", "slurm", "auto", "cpu"),
    (1, "gpu", "slurm", "cuda", "workers and servers share GPUs inside one machine only"),
]


@pytest.mark.parametrize(("gpus", "accelerator", "cluster", "wished", "found"), WHERE)
def test_where_servers_have_their_weights(gpus, accelerator, cluster, wished, found, monkeypatch):
    put_gpus(monkeypatch, gpus)
    nodes = " cluster.server_placement=own_nodes" if cluster == "slurm" else ""
    devices = f"cluster.accelerator={accelerator} cluster.server_device={wished}"
    words = f"{SERVED} cluster={cluster}{nodes} {devices}"
    if len(found) < 5:
        assert point(words).server_device == found
        return
    with pytest.raises(SettingError, match=rf"^cluster\.server_device: {found}; cpu is needed"):
        point(words)


def test_precisions_that_a_server_cannot_honour_name_the_scheme(monkeypatch):
    put_gpus(monkeypatch, 2)
    for precision in ("16-mixed", "16-true", "bf16-true"):
        words = f"cluster.accelerator=gpu training.precision={precision}"
        point(words)
        with pytest.raises(SettingError, match=r"^training\.precision: .*async_parameter_server"):
            point(f"{SERVED} {words}")


def test_kinds_of_numbers_follow_from_the_cluster():
    for words, kind in (
        ("", "measured"),
        ("cluster.step_seconds=0.1", "paced"),
        ("cluster.server_seconds=0.1", "paced"),
        ("cluster=virtual", "virtual"),
    ):
        made = point(words)
        assert made.kind == kind
        assert is_virtual(made.config.values["cluster"]) == (kind == "virtual")
