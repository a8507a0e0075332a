"""More workers than the memory of a GPU holds are refused before they train."""

from types import SimpleNamespace

import pytest
import torch
from pytorch_lightning import LightningModule
from torch import nn

from paceline.errors import SettingError
from paceline.run.users_module import require_memory

BATCH = torch.ones(2, 3), torch.zeros(2)
CPU = torch.device("cpu")
POINT = SimpleNamespace(
    batch_size=2,
    cluster=SimpleNamespace(workers_per_accelerator=7),
    training=SimpleNamespace(precision="32-true"),
)


class Stepping(LightningModule):
    error: Exception | None = None

    def __init__(self):
        super().__init__()
        self.line, self.dropped = nn.Linear(3, 1), nn.Dropout(0.5)

    def training_step(self, batch, batch_idx):
        if self.error:
            raise self.error
        return self.dropped(self.line(batch[0])).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, RuntimeError])
def test_a_step_that_does_not_fit_is_a_setting_that_does_not(error):
    module = Stepping()
    module.error = error("CUDA error: out of memory, and more\non further lines")
    expected = (
        r"^cluster\.workers_per_accelerator: the memory of a GPU does not hold 7 workers of 2 "
        r"images a step; fewer, or a smaller batch_size, are needed$"
    )
    with pytest.raises(SettingError, match=expected):
        require_memory(module, BATCH, CPU, POINT)


@pytest.mark.parametrize("error", [None, ValueError("a fault of the module")])
def test_a_step_that_fits_changes_neither_the_module_nor_random_numbers(error):
    module = Stepping()
    module.error = error
    weights = module.line.weight.detach().clone()
    before = torch.get_rng_state()
    require_memory(module, BATCH, CPU, POINT)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(module.line.weight, weights)
    assert module.line.weight.grad is None
