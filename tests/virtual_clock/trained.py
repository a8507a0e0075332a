"""The tiny problem in anybody's Trainer, in this process."""

import warnings
from functools import partial

import torch
from pytorch_lightning import Trainer

from paceline.model.classifier import Classifier
from paceline.scheme.async_parameter_server import AsyncParameterServer
from paceline.scheme.elastic_averaging import ElasticAveraging
from paceline.scheme.gossip import Gossip
from paceline.scheme.independent import Independent
from paceline.scheme.local_sgd import LocalSGD
from paceline.scheme.mixed import Mixed
from paceline.scheme.post_local_sgd import PostLocalSGD
from paceline.scheme.stale_synchronous import StaleSynchronous
from paceline.scheme.sync_allreduce import SyncAllReduce
from paceline.scheme.sync_parameter_server import SyncParameterServer
from paceline.scheme.sync_then_async import SyncThenAsync
from paceline.timing.step_times import StepTimes
from paceline.virtual_clock.virtual_strategy import VirtualStrategy
from tests.tiny import batches_of, tiny_network, tiny_point

SCHEMES = {
    "sync_allreduce": SyncAllReduce,
    "one server": lambda: AsyncParameterServer(1),
    "two servers": lambda: AsyncParameterServer(2),
    "inverse staleness": lambda: AsyncParameterServer(1, damping="inverse_staleness"),
    "delay compensation": lambda: AsyncParameterServer(2, damping="delay_compensation"),
    "sync_parameter_server": lambda: SyncParameterServer(2),
    "stale_synchronous": lambda: StaleSynchronous(2, bound=1),
    "mixed": lambda: Mixed(1, group_size=1),
    "sync_then_async": lambda: SyncThenAsync(1, switch_at=0.5),
    "independent": Independent,
    "local_sgd": lambda: LocalSGD(period=3),
    "post_local_sgd": lambda: PostLocalSGD(period=3, switch_at=0.5),
    "elastic_averaging": lambda: ElasticAveraging(2, period=2, elasticity=0.3),
    "gossip over a ring": lambda: Gossip("ring"),
    "gossip over a complete graph": lambda: Gossip("complete"),
}
JITTERED = StepTimes(jitter=0.5, seed=3)


def module_of(batch_norm=False, momentum=0.9, weight_decay=0.01):
    torch.manual_seed(3)
    sgd = partial(torch.optim.SGD, lr=0.1, momentum=momentum, weight_decay=weight_decay)
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


def train(
    scheme,
    workers,
    num_steps=60,
    *,
    batch_norm=False,
    momentum=0.9,
    weight_decay=0.01,
    length=None,
    **options,
):
    """The strategy and the module after `num_steps` steps of 4 images; the Trainer ends after
    `length` batches, or as many.
    """
    torch.set_num_threads(1)  # as in a run
    config = tiny_point("sync_allreduce", workers, 4)
    shares = [batches_of(config, worker) for worker in range(workers)]
    options.setdefault("step_times", JITTERED)
    strategy = VirtualStrategy(scheme, workers=workers, num_steps=num_steps, **options)
    module = module_of(batch_norm, momentum, weight_decay)
    loader = strategy.batches(lambda worker, n: shares[worker][n], 4, length or num_steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer_of(strategy, precision="64-true").fit(module, loader)
    return strategy, module


def weights_of(module):
    return {name: value.clone() for name, value in module.network.state_dict().items()}
