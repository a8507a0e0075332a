"""What a record says of rate, momentum and decay is what somebody's optimizer has."""

from types import SimpleNamespace

import pytest
import torch
from torch.optim import lr_scheduler

from paceline.errors import SettingError
from paceline.record.training import Training
from paceline.run.users_module import HeededSettings
from tests.run.own import own_point
from tests.tiny import run_tiny, tiny_point


def weight():
    return torch.nn.Parameter(torch.zeros(2))


def check(optimizer, **settings):
    training = tiny_point("sync_allreduce", 1, 4)["training"]
    del training["_target_"]
    trainer = SimpleNamespace(optimizers=[optimizer])
    HeededSettings(Training(**{**training, **settings})).on_train_start(trainer, None)


SET = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}


def test_each_setting_that_the_optimizer_does_not_have_is_named():
    optimizer = torch.optim.SGD([weight()], **SET)
    for name, has in SET.items():
        with pytest.raises(SettingError, match=rf"^model: training\.{name} is 0.5.* has {has:g}:"):
            check(optimizer, **{**SET, name: 0.5})
    both = r"^model: training\.lr is 0\.3.*; training\.momentum is 0\.8.*=0\.9$"
    with pytest.raises(SettingError, match=both):
        check(optimizer, **{**SET, "lr": 0.3, "momentum": 0.8})


def test_an_option_that_an_optimizer_does_not_know_is_not_compared():
    optimizer = torch.optim.AdamW([weight()], lr=0.1, weight_decay=0.01)
    check(optimizer, **SET)
    with pytest.raises(SettingError, match=r"weight_decay is 0, and its optimizer has 0\.01"):
        check(optimizer, **{**SET, "weight_decay": 0.0})


def test_one_group_of_weights_is_enough():
    groups = [{"params": [weight()], "weight_decay": 0.0, "lr": 0.01}, {"params": [weight()]}]
    check(torch.optim.SGD(groups, **SET), **SET)


def test_the_rate_is_that_before_a_scheduler_changes_it():
    for schedule in (
        lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: (step + 1) / 100),
        lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.1, 10, cycle_momentum=False),
    ):
        optimizer = torch.optim.SGD([weight()], **SET)
        schedule(optimizer)
        check(optimizer, **SET)


@pytest.mark.parametrize(
    ("scheme", "clock"),
    [("sync_allreduce", "wall"), ("async_parameter_server", "wall"), ("local_sgd", "virtual")],
)
def test_no_scheme_trains_at_a_rate_that_is_not_the_one_set(scheme, clock, tmp_path):
    config = own_point(scheme, clock, training__epochs=1, training__lr=0.25)
    message = "^model: training.lr is 0.25, and its optimizer has 0.5"
    with pytest.raises(SettingError, match=message):
        run_tiny(config, tmp_path / "log")
