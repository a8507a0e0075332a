"""The rules by hand, without processes; and what every scheme has to bring."""

import re
from pathlib import Path

import pytest
import torch
import yaml
from torch.testing import assert_close

from paceline.errors import SettingError
from paceline.scheme.async_parameter_server import AsyncParameterServer
from paceline.scheme.scheme import Adopt, Apply, Arrival, Mean, Push, Release
from paceline.scheme.sync_allreduce import SyncAllReduce

ROOT = Path(__file__).parent.parent.parent
SCHEMES = [
    path
    for path in sorted((ROOT / "src/paceline/scheme").glob("*.py"))
    if path.stem not in ("__init__", "scheme")
]
GRADIENT = torch.tensor([1.0, -2.0], dtype=torch.float64)
REPLY = torch.tensor([4.0, 8.0], dtype=torch.float64)


def driven(scheme):
    """The one message of a step and its outcome, when the message is answered with REPLY."""
    gradient, reply = GRADIENT.clone(), REPLY.clone()
    step = scheme.step(gradient)
    message = next(step)
    with pytest.raises(StopIteration) as end:
        step.send(reply)
    assert_close((gradient, reply), (GRADIENT, REPLY), rtol=0, atol=0)
    return message, end.value.value


def test_synchronous_workers_apply_the_mean_of_their_gradients():
    message, outcome = driven(SyncAllReduce())
    assert isinstance(message, Mean)
    assert isinstance(outcome, Apply)
    assert_close((message.value, outcome.gradient), (GRADIENT, REPLY), rtol=0, atol=0)


def test_asynchronous_workers_push_and_adopt_the_answer():
    message, outcome = driven(AsyncParameterServer(servers=1))
    assert isinstance(message, Push)
    assert isinstance(outcome, Adopt)
    assert_close((message.gradient, outcome.weights), (GRADIENT, REPLY), rtol=0, atol=0)


def test_an_asynchronous_push_is_applied_and_answered_at_once_and_alone():
    scheme = AsyncParameterServer(servers=2)
    waiting = (Arrival(worker=0, staleness=4), Arrival(worker=2, staleness=9))
    assert scheme.released(waiting[:1], workers=3) == Release(applied=(0,), answered=(0,))
    assert scheme.released(waiting, workers=3) == Release(applied=(2,), answered=(2,))


def test_images_behind_one_update():
    assert SyncAllReduce().images_per_update(batch_size=8, workers=4) == 32
    assert AsyncParameterServer(servers=3).images_per_update(batch_size=8, workers=4) == 8


def test_which_schemes_have_servers():
    assert SyncAllReduce().servers == 0
    assert AsyncParameterServer(servers=3).servers == 3


def test_a_scheme_without_servers_releases_nothing():
    with pytest.raises(NotImplementedError, match="SyncAllReduce has no servers"):
        SyncAllReduce().released((Arrival(0, 0),), workers=1)


def test_a_parameter_server_scheme_needs_a_server():
    with pytest.raises(SettingError, match=r"^scheme\.servers: at least 1 is needed, not 0$"):
        AsyncParameterServer(servers=0)


@pytest.mark.parametrize("path", SCHEMES, ids=lambda path: path.stem)
def test_every_scheme_has_settings_a_source_and_laws(path):
    settings = yaml.safe_load((ROOT / "conf/scheme" / path.name).with_suffix(".yaml").read_text())
    assert settings["_target_"].startswith(f"paceline.scheme.{path.stem}.")
    docstring = path.read_text().split('"""')[1]
    assert re.search(r"\([A-Z][a-z]+ .*\b(19|20)\d\d\b", docstring), "no citation"
    assert re.search(r"^Law: \w", docstring, re.MULTILINE)
    assert f'"{path.stem}"' in (ROOT / "tests/cluster/test_laws.py").read_text()


def test_every_setting_of_a_scheme_has_its_file():
    files = {path.stem for path in (ROOT / "conf/scheme").glob("*.yaml")}
    assert files == {path.stem for path in SCHEMES}
