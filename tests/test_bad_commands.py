"""Commands that cannot do what they ask: one line that names the setting, before data are read."""

import shlex
import sys

import pytest

from paceline import cli

UNLOGGED = "measurement.mlflow.tracking_uri=null"
OF_SYNTHETIC = "train data=synthetic data.image_shape=[1,8,8]"
SERVED = "train scheme=async_parameter_server workers=2"
REFUSED = {
    # words that are no settings
    "train =5": "settings",
    "train ==": "settings",
    "train hydra.run.dir=/proc/x": "hydra.run.dir",
    "train experiments=5": "experiments",
    "train +data=5": "data",
    "train wrokers=2": "wrokers",
    "train +unheard=1": "unheard",
    "train ++unheard=1": "unheard",
    "train +training.unheard=1": "training.unheard",
    "train scheme=telepathy": "scheme",
    "train -m study=quick seed=0,1": "study",  # of which there is a file
    "train study=../bad": "study",
    "train study=glob(*)": "study",
    "train -m seed=glob(*)": "seed",
    "sweep quick seed=glob(*)": "seed",
    f"sweep {'x' * 300}": "study",
    f"report {'x' * 300}": "study",
    "sweep quick tuning=5 training.rate=tuned": "tuning",
    # types
    "train workers=0": "workers",
    "train workers=-1 cluster=virtual cluster.slow_workers=1": "workers",
    f"{OF_SYNTHETIC} data.num_train=abc": "data.num_train",
    "train data.image_shape=[28,28]": "data.image_shape",
    # what cannot be meant
    "train workers=4096 cluster.accelerator=gpu": "workers",
    "train scheme=mixed workers=2 training.gradient_clip_val=1": "training.gradient_clip_val",
    f"{SERVED} data.placement=partitioned data.shuffle_every=1": "data.shuffle_every",
    "train training.lr=1e-320": "training.lr",
    "train cluster.step_seconds=1e9": "cluster.step_seconds",
    "train cluster.step_seconds=100 cluster.slow_workers=1 cluster.slow_factor=6": (
        "cluster.step_seconds"
    ),
    "train training.samples=1": "training.samples",
    "train scheme=elastic_averaging workers=2 scheme.period=999999999": "scheme.period",
    # what the data or the network do not have
    "train data.num_validation=60000": "data.num_validation",
    "train data.num_validation=0": "data.num_validation",
    "train data.image_shape=[3,7,7]": "data.image_shape",
    "train data=cifar10 data.image_shape=[3,7,7]": "data.image_shape",
    "train data=fashion_mnist_subset data.store=decoded_each_time": "data.store",
    f"{OF_SYNTHETIC} batch_size=2001 workers=2": "batch_size",
    f"{OF_SYNTHETIC} batch_size=2000 workers=4 data.placement=partitioned": "batch_size",
    "train model.optimizer._target_=torch.optim.Adam": "model.optimizer.momentum",
    "train model/optimizer=adam +model.optimizer.nesterov=true": "model.optimizer.nesterov",
    "train model.optimizer._target_=torch.optim.Adma": "model.optimizer._target_",
}
CAUTIONED = {
    "train cluster.slow_factor=4": "cluster.slow_factor",
    "train cluster.step_seconds=1 cluster.slow_workers=1": "cluster.slow_workers",
    "train cluster.straggler_factor=4": "cluster.straggler_factor",
    "train cluster=virtual cluster.straggler_probability=0.1": "cluster.straggler_probability",
    "train cluster.slow_workers=1 cluster.slow_factor=4": "cluster.slow_workers",
    "train cluster.step_jitter=0.1": "cluster.step_jitter",
    "train cluster=virtual cluster.step_seconds={7:1.0} batch_size=10": "cluster.step_seconds",
    "train training.warmup_epochs=1": "training.warmup_epochs",
}
GOOD = [
    "train workers=2 cluster.step_seconds=1 cluster.slow_workers=1 cluster.slow_factor=4",
    "train cluster=virtual cluster.step_jitter=0.2 training.momentum=0.99 training.lr=1",
    "train cluster=virtual cluster.step_seconds={8:0.1,64:0.8}",
    f"{OF_SYNTHETIC} scheme=local_sgd workers=2 scheme.period=312",
    "train model/optimizer=adam training.samples=32",
]


class DataAreRead(BaseException):
    """No longer only the settings are looked at."""


@pytest.fixture
def command(root, monkeypatch, capfd):
    """Run a command until it reads data; return its exit code and the lines of its stderr."""

    def read(*_):
        raise DataAreRead

    def run(words):
        monkeypatch.chdir(root)
        given = shlex.split(words)
        given += [UNLOGGED] if given[0] == "train" else []
        monkeypatch.setattr(sys, "argv", ["paceline", *given])
        capfd.readouterr()
        code = None
        try:
            cli.main()
        except SystemExit as end:
            code = end.code
        except DataAreRead:
            pass
        return code, capfd.readouterr().err.splitlines()

    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr("paceline.run.run_point.prepare_data", read)
    return run


def test_what_cannot_be_done_is_refused_in_one_line_before_data_are_read(command):
    found = {words: command(words) for words in REFUSED}
    named = {
        words: lines[0].removeprefix("paceline: ").partition(":")[0]
        if code == 2 and len(lines) == 1
        else (code, lines)
        for words, (code, lines) in found.items()
    }
    assert named == REFUSED


def test_what_has_no_effect_is_said_in_one_line(command):
    found = {words: command(words) for words in CAUTIONED}
    named = {words: [line.split(": ")[1] for line in lines] for words, (_, lines) in found.items()}
    assert named == {words: [setting] for words, setting in CAUTIONED.items()}
    assert {code for code, _ in found.values()} == {None}


def test_what_is_right_begins_without_a_word(command):
    assert [command(words) for words in GOOD] == [(None, [])] * len(GOOD)
