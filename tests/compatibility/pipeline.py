"""What somebody brings, as `paceline train` builds it from its settings."""

from pytorch_lightning import LightningDataModule

from paceline.errors import SettingError
from tests.compatibility.asked import ASKED, BATCH
from tests.compatibility.places import WORKERS, WORKS
from tests.tiny import run_tiny, tiny_point


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
    here = "tests.compatibility.pipeline"
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
