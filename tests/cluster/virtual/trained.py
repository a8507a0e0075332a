"""The tiny problem in anybody's Trainer, in this process."""

import warnings
from functools import partial

import torch
from pytorch_lightning import Trainer

from paceline.cluster.step_times import StepTimes
from paceline.cluster.virtual.strategy import VirtualCluster
from paceline.model.classifier import Classifier
from paceline.scheme.async_parameter_server import AsyncParameterServer
from paceline.scheme.sync_allreduce import SyncAllReduce
from tests.tiny import batches_of, tiny_network, tiny_point

SCHEMES = {
    "sync_allreduce": SyncAllReduce,
    "one server": lambda: AsyncParameterServer(1),
    "two servers": lambda: AsyncParameterServer(2),
}
JITTERED = StepTimes(jitter=0.5, seed=3)


def module_of(batch_norm=False):
    torch.manual_seed(3)
    sgd = partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.01)
    return Classifier(tiny_network(batch_norm).double(), sgd)


def trainer_of(strategy, **options):
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Trainer(
            strategy=strategy, accelerator="cpu", devices=1, max_epochs=1, **quiet, **options
        )


def train(scheme, workers, num_steps=60, *, batch_norm=False, **options):
    """The strategy and the module after `num_steps` steps of 4 images."""
    torch.set_num_threads(1)  # as in a run
    config = tiny_point("sync_allreduce", workers, 4)
    shares = [batches_of(config, worker) for worker in range(workers)]
    options.setdefault("step_times", JITTERED)
    strategy = VirtualCluster(scheme, workers=workers, num_steps=num_steps, **options)
    module = module_of(batch_norm)
    loader = strategy.batches(lambda worker, n: shares[worker][n], 4, num_steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer_of(strategy, precision="64-true").fit(module, loader)
    return strategy, module


def weights_of(module):
    return {name: value.clone() for name, value in module.network.state_dict().items()}
