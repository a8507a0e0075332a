"""The tiny problem in anybody's Trainer, in this process."""

import contextlib
import warnings
from dataclasses import fields
from functools import cache, partial

import pytest
import torch
import yaml
from pytorch_lightning import Trainer
from pytorch_lightning.trainer.connectors import callback_connector

from paceline.clock.run_spec import RunSpec
from paceline.clock.virtual.lender import Lender
from paceline.clock.virtual.shared_states import SharedStates
from paceline.clock.virtual.virtual_strategy import VirtualStrategy
from paceline.errors import SettingError
from paceline.model.classifier import Classifier
from paceline.record.target import Target
from paceline.scheme.counts import Counts
from paceline.timing.step_times import StepTimes
from tests.clock.test_laws import LAWS
from tests.tiny import CONF, batches_of, tiny_network, tiny_point

MORE = {"elastic_averaging": [{"servers": 2, "period": 2, "elasticity": 0.3}]}


def cases():
    """Every scheme of conf/, as it is there and with each of the settings that its laws name."""
    for path in sorted((CONF / "scheme").glob("*.yaml")):
        defaults = yaml.safe_load(path.read_text())
        laws = [scheme_settings(law) for law in LAWS.get(path.stem, ())]
        for changes in ({}, *laws, *MORE.get(path.stem, ())):
            said = ", ".join(f"{name}={value}" for name, value in changes.items())
            yield f"{path.stem} ({said})" if said else path.stem, defaults | changes


def scheme_settings(law):
    beginning = "scheme__"
    return {
        name.removeprefix(beginning): value
        for name, value in law.settings.items()
        if name.startswith(beginning)
    }


SCHEMES = {name: Target("scheme", settings).build for name, settings in cases()}
# every Trainer would read the metadata of all installed packages
callback_connector._load_external_callbacks = cache(callback_connector._load_external_callbacks)
OF_A_RUN = {field.name for field in fields(RunSpec)}
JITTERED = StepTimes(jitter=0.5, seed=3)


def workers_for(scheme, at_least):
    """The fewest that the scheme can have, of so many or more."""
    for num_workers in range(at_least, at_least + 16):
        with contextlib.suppress(SettingError):
            return Counts(scheme, num_workers).num_workers
    raise ValueError(f"no number of workers from {at_least} on suits {scheme}: change its laws")


def first_by(kind):
    """The first scheme of each kind, by name."""
    kinds = {kind(scheme()): name for name, scheme in reversed(SCHEMES.items())}
    return {name: SCHEMES[name] for name in SCHEMES if name in kinds.values()}


def structure(scheme):
    """What decides who holds which vector when."""
    return (type(scheme), scheme.servers, scheme.group_size, scheme.needs_read)


STRUCTURES = first_by(structure)


def module_of(
    batch_norm=False, momentum=0.9, weight_decay=0.01, dropout=0.0, optimizer=None, layers=()
):
    torch.manual_seed(3)
    sgd = partial(torch.optim.SGD, lr=0.1, momentum=momentum, weight_decay=weight_decay)
    network = tiny_network(batch_norm).double()
    if dropout:
        network.append(torch.nn.Dropout(dropout))
    network.extend(layers)
    return Classifier(network, optimizer or sgd)


def trainer_of(strategy, **options):
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    settings = {"accelerator": "cpu", "devices": 1, "max_epochs": 1, **quiet, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Trainer(strategy=strategy, **settings)


@contextlib.contextmanager
def copied_vectors():
    """Let no two workers share a vector, and recycle none."""
    begin = SharedStates.__init__

    def begin_apart(self, *arguments):
        begin(self, *arguments)
        for worker, state in enumerate(self.of[1:]):
            self._split(state, {worker})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SharedStates, "__init__", begin_apart)
        patch.setattr(Lender, "lend", lambda self: self._like.new_empty(self._shape))
        yield


def train(
    scheme,
    workers,
    num_steps=60,
    *,
    batch_norm=False,
    momentum=0.9,
    weight_decay=0.01,
    length=None,
    dropout=0.0,
    optimizer=None,
    layers=(),
    callbacks=(),
    of_trainer=None,
    ckpt_path=None,
    precision="64-true",
    **options,
):
    """The strategy and the module after `num_steps` steps of 4 images; the Trainer ends after
    `length` batches, or as many. It goes on from `ckpt_path`, if that is given. `layers`: more of
    the network. `of_trainer`: options of the Trainer. `options`: of the run, or of its strategy.
    """
    torch.set_num_threads(1)  # as in a run
    config = tiny_point("sync_allreduce", workers, 4)
    shares = [batches_of(config, worker) for worker in range(workers)]
    options.setdefault("step_times", JITTERED)
    of_run = {name: options.pop(name) for name in OF_A_RUN & options.keys()}
    strategy = VirtualStrategy(scheme, RunSpec(workers, num_steps=num_steps, **of_run), **options)
    module = module_of(batch_norm, momentum, weight_decay, dropout, optimizer, layers)
    if precision != "64-true":
        module.float()
        shares = [[(images.float(), labels) for images, labels in each] for each in shares]
    loader = strategy.batches(lambda worker, n: shares[worker][n], 4, length or num_steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        placed = {"accelerator": "gpu"} if "cuda" in str(options.get("device")) else {}
        chosen = {**placed, **(of_trainer or {})}
        trainer = trainer_of(strategy, precision=precision, callbacks=[*callbacks], **chosen)
        trainer.fit(module, loader, ckpt_path=ckpt_path)
    return strategy, module


def weights_of(module):
    return {name: value.clone() for name, value in module.network.state_dict().items()}
