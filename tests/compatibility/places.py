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


def own_weights(folder: Any) -> dict[str, str]:
    return _launched([*ASKED], [], folder)


def beside_server(said: dict[str, str], folder: Any) -> dict[str, str]:
    """Outcomes in two processes and a server, which serves what is `said` to get as far. What is
    refused while the server waits ends the run, and has one of its own.
    """
    late = [name for name in said if said[name].startswith(LATE)]
    works = [name for name in said if said[name] == WORKS]
    found = _launched([name for name in said if name not in late], works, folder, servers=1)
    for name in late:
        try:
            found |= _launched([name], [name], folder, servers=1)
        except SettingError as error:
            found[name] = f"{LATE}: {error.setting}"
    return found


def _launched(names: list[str], served: list[str], folder: Any, servers: int = 0) -> dict[str, str]:
    target, arguments = f"{__name__}:train_each", (names, served, str(folder))
    found = launch(target, arguments, workers=WORKERS, servers=servers, log_folder=folder)
    assert found[0] == found[1]
    return found[0]


def train_each(names: list[str], served: list[str], folder: str) -> dict[str, str]:
    join(60, "cpu")
    scheme = AsyncParameterServer(1) if dist.get_world_size() > WORKERS else LocalSGD(2)
    found = {}
    for name in names:
        if dist.get_rank() < WORKERS:
            run = RunSpec(WORKERS, batch_size=BATCH, num_steps=STEPS)
            found[name] = _outcome(name, RuleStrategy(scheme, run), folder)
        elif name in served:
            serve(scheme)
    leave()
    return found


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
    optimizer = own_module(name).configure_optimizers()
    if isinstance(optimizer, dict):
        optimizer = optimizer["optimizer"]
    while isinstance(optimizer, (list, tuple)):
        optimizer = optimizer[0]
    (group,) = optimizer.param_groups
    had = {**group, "lr": group.get("initial_lr", group["lr"])}
    return {f"training__{x}": had[x] for x in ("lr", "momentum", "weight_decay") if x in had}
