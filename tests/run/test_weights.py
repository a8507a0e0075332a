"""`save_weights=true` leaves the evaluated weights for plain torch, and for another run."""

from functools import partial

import pytest
import torch

from paceline.errors import SettingError
from paceline.model.classifier import Classifier
from paceline.model.score import score
from paceline.run.weights import load_weights, save_weights
from tests.tiny import CLOCKS, evaluated, run_tiny, run_together, tiny_network, tiny_point


def test_a_plain_network_loads_them_and_scores_the_same(tmp_path):
    network = {"_target_": "tests.tiny.tiny_network", "batch_norm": True}
    schemes = ("sync_allreduce", "async_parameter_server")
    configs = [tiny_point(scheme, 2, 4, model__network=network) for scheme in schemes]
    runs = run_together(configs, tmp_path)
    for config, (seen, weights) in zip(configs, runs, strict=True):
        plain = tiny_network(batch_norm=True).double()
        plain.load_state_dict(weights)
        scores = [score for each in seen.training for score in each.scores]
        last = max(scores, key=lambda score: score.samples)
        again = score(plain, [evaluated(config, "validation")], "cpu")
        assert again.top1 == last.top1
        assert again.loss == pytest.approx(last.loss, rel=1e-9)


def test_without_the_setting_there_are_none(tmp_path):
    once = {"save_weights": False, "training__epochs": 1}
    config = tiny_point("async_parameter_server", 1, 4, **once, **CLOCKS["virtual"])
    with pytest.raises(FileNotFoundError):
        run_tiny(config, tmp_path)
    assert not list(tmp_path.glob("*.pt"))


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_run_begins_with_the_weights_of_the_file(clock, tmp_path):
    first = tiny_network().double().state_dict()
    torch.save(first, tmp_path / "first.pt")
    settings = {"training__initial_weights": str(tmp_path / "first.pt"), **CLOCKS[clock]}
    still = {"model__optimizer__lr": 0.0, "training__lr": 0.1, "training__epochs": 1}
    schemes = ("sync_allreduce", "async_parameter_server", "local_sgd")
    configs = [tiny_point(scheme, 2, 8, **settings, **still) for scheme in schemes]
    for scheme, (_, weights) in zip(schemes, run_together(configs, tmp_path), strict=True):
        assert all(torch.equal(weights[name], first[name]) for name in first), scheme


def made_classifier(batch_norm=False):
    return Classifier(tiny_network(batch_norm), partial(torch.optim.SGD, lr=0.1))


def test_what_is_saved_is_loaded_with_the_statistics(tmp_path):
    saved, loaded = made_classifier(batch_norm=True), made_classifier(batch_norm=True)
    saved(torch.randn(8, 1, 4, 4))  # changes the running statistics
    save_weights(saved, tmp_path / "weights.pt")
    load_weights(loaded, str(tmp_path / "weights.pt"))
    expected, found = saved.state_dict(), loaded.state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"1.weight": torch.zeros(5, 9)}, r"1\.weight has the shape \[5, 9\] there, and \[5, 16\]"),
        ({"1.weight": torch.zeros(5, 16)}, r"it has no 1\.bias, which the network has"),
        ({**tiny_network().state_dict(), "9.bias": torch.zeros(1)}, r"it has 9\.bias, which"),
        ([1, 2], "has no weights by name"),
        (b"text", "has no weights that torch can load"),
    ],
)
def test_weights_of_another_network_are_refused_by_the_first_that_differs(
    content, message, tmp_path
):
    file = tmp_path / "weights.pt"
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        torch.save(content, file)
    with pytest.raises(SettingError, match=rf"^training\.initial_weights: .*{message}") as error:
        load_weights(made_classifier(), str(file))
    assert "\n" not in str(error.value)
