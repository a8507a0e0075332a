"""Where somebody's module is trained: on a virtual clock, by real workers, and by settings."""

import warnings
from typing import Any

import torch
import torch.distributed as dist
from pytorch_lightning import LightningDataModule, LightningModule
from pytorch_lightning.plugins.environments import LightningEnvironment

from paceline.clock.run_spec import RunSpec
from paceline.clock.virtual.virtual_strategy import VirtualStrategy
from paceline.clock.wall.rule_strategy import RuleStrategy
from paceline.clock.wall.server import serve
from paceline.errors import SettingError
from paceline.exchange.process_group import join, leave
from paceline.scheme.async_parameter_server import AsyncParameterServer
from paceline.scheme.local_sgd import LocalSGD
from paceline.timing.step_times import StepTimes
from tests.clock.virtual.trained import trainer_of
from tests.compatibility.asked import ASKED, BATCH, IMAGES
from tests.launching import launch
from tests.tiny import run_tiny, tiny_point

WORKERS, EPOCHS = 2, 2
WORKS, LATE = "works", "refused in training"
STEPS = WORKERS * EPOCHS * IMAGES // BATCH


def virtual(name: str, folder: Any) -> str:
    scheme, times = AsyncParameterServer(1), StepTimes(jitter=0.3)
    strategy = VirtualStrategy(scheme, RunSpec(WORKERS), step_times=times)
    return _outcome(name, strategy, str(folder))


def served(names: list[str], folder: Any) -> dict[str, str]:
    """Outcomes in two processes and a server, of what is not refused before it is reached."""
    return _launched("worker_or_server", names, folder, servers=1)


def refused(names: list[str], folder: Any) -> dict[str, str]:
    """Outcomes of what never reaches a server, in a process without one."""
    return _launched("worker_or_server", names, folder, workers=1)


def ended(name: str, folder: Any) -> str:
    """Outcome of what is refused while the server waits, and ends the run."""
    try:
        return served([name], folder)[name]
    except SettingError as error:
        return f"{LATE}: {error.setting}"


def own_weights(names: list[str], folder: Any) -> dict[str, str]:
    return _launched("own_worker", names, folder)


def _launched(
    target: str, names: list[str], folder: Any, workers: int = WORKERS, servers: int = 0
) -> dict[str, str]:
    """Outcomes in the first process."""
    arguments = (names, str(folder))
    found = launch(
        f"{__name__}:{target}", arguments, workers=workers, servers=servers, log_folder=folder
    )
    assert all(each == found[0] for each in found[:workers])
    return found[0]


def worker_or_server(names: list[str], folder: str) -> dict[str, str]:
    join(60, "cpu")
    scheme, found = AsyncParameterServer(1), {}
    for name in names:
        if dist.get_rank() == WORKERS:
            serve(scheme)
        else:
            strategy = _strategy(RuleStrategy, scheme)
            found[name] = _outcome(name, strategy, folder)
    leave()
    return found


def own_worker(names: list[str], folder: str) -> dict[str, str]:
    join(60, "cpu")
    found = {}
    for name in names:
        strategy = _strategy(RuleStrategy, LocalSGD(2))
        found[name] = _outcome(name, strategy, folder)
    leave()
    return found


def _strategy(kind: Any, scheme: Any) -> Any:
    workers = min(WORKERS, dist.get_world_size())
    steps = STEPS * workers // WORKERS
    return kind(scheme, RunSpec(workers, batch_size=BATCH, num_steps=steps))


def _outcome(name: str, strategy: Any, folder: str) -> str:
    """Train; return WORKS, or the setting that is refused."""
    asked = ASKED[name]
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = asked.module()
        before = _weights(asked.moves(module))
        validated = asked.data() if asked.validates else None
        try:
            options = asked.options(folder) if asked.options else {}
            options |= {"max_epochs": EPOCHS, "default_root_dir": folder}
            trainer = trainer_of(strategy, plugins=[LightningEnvironment()], **options)
            trainer.fit(module, asked.data(), validated)
        except SettingError as error:
            if torch.equal(_weights(asked.moves(module)), before):
                return f"refused: {error.setting}"
            if isinstance(strategy, RuleStrategy) and strategy.scheme.servers:
                raise  # the server waits
            return f"{LATE}: {error.setting}"
        if hasattr(strategy, "finish"):
            strategy.finish()
    after = _weights(asked.moves(module))
    assert after.isfinite().all(), name
    assert not torch.equal(before, after), name
    return WORKS


def _weights(module: LightningModule) -> torch.Tensor:
    return torch.cat([each.detach().flatten().clone() for each in module.parameters()])


class OwnData(LightningDataModule):
    def __init__(self, name):
        super().__init__()
        self._data = ASKED[name].data

    def train_dataloader(self):
        return self._data()

    val_dataloader = test_dataloader = train_dataloader


def own_module(name):
    return ASKED[name].module()


def trained(name, folder):
    """Outcome of a virtual run with the settings that the module's optimizer has."""
    here = __name__
    config = tiny_point(
        "async_parameter_server",
        WORKERS,
        BATCH,
        "virtual",
        data={"_target_": f"{here}.OwnData", "name": name},
        model={"_target_": f"{here}.own_module", "name": name, "shards": 1, "split": "auto"},
        training__epochs=2,
        training__precision="32-true",
        **_settings(name),
    )
    try:
        _, weights = run_tiny(config, folder)
    except SettingError as error:
        return f"refused: {error.setting}"
    assert all(each.isfinite().all() for each in weights.values())
    return WORKS


def _settings(name):
    """Those of `training` that the module's optimizer has by itself."""
    found = own_module(name).configure_optimizers()
    if isinstance(found, dict):
        found = found["optimizer"]
    optimizer = found
    while isinstance(optimizer, (list, tuple)):
        optimizer = optimizer[0]
    (group,) = optimizer.param_groups
    had = {**group, "lr": group.get("initial_lr", group["lr"])}
    compared = {"lr", "momentum", "weight_decay"} & set(had)
    return {f"training__{each}": had[each] for each in compared}
