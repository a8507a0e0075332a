"""Weights that are only sent: what is trained does not change."""

import copy

import pytest
import torch

from paceline.errors import SettingError
from paceline.model.classifier import Classifier
from paceline.model.filling import fill
from tests.tiny import point_of, run_tiny, tiny_network, tiny_point

OWN = 4 * 103  # bytes of the tiny network
BATCH = (torch.ones(2, 1, 4, 4), torch.tensor([0, 1]))


def classifier(kind=Classifier):
    torch.manual_seed(0)
    return kind(tiny_network(), lambda weights: torch.optim.SGD(weights, lr=0.1))


@pytest.mark.parametrize(("num_bytes", "filling"), [(1001, [147]), (OWN, [])])
def test_all_weights_together_have_the_bytes(num_bytes, filling):
    """A workload of the network's own size adds nothing."""
    module = classifier()
    fill(module, num_bytes, 4)
    assert sum(weight.nbytes for weight in module.parameters()) == num_bytes // 4 * 4
    added = [w.numel() for name, w in module.named_parameters() if name == "filling"]
    assert added == filling


def test_gradients_of_the_trained_weights_stay_and_the_others_are_zero():
    plain, filled = classifier(), classifier()
    fill(filled, 1000, 4)
    losses = [module.training_step(BATCH, 0) for module in (plain, filled)]
    assert losses[0] == losses[1]
    for loss in losses:
        loss.backward()
    gradients = {name: weight.grad for name, weight in filled.named_parameters()}
    assert not gradients.pop("filling").any()
    for name, weight in plain.named_parameters():
        assert torch.equal(weight.grad, gradients[name])


def test_a_workload_smaller_than_the_network_is_refused():
    with pytest.raises(SettingError, match=r"^workload: messages of 411 bytes; .* have 412$"):
        fill(classifier(), OWN - 1, 4)


class Mapping(Classifier):
    def training_step(self, batch, batch_idx):
        return {"loss": super().training_step(batch, batch_idx)}


def test_a_copy_trains_its_own_weights():
    """In another precision, as in a rehearsal."""
    module = classifier()
    fill(module, 1000, 4)
    other = copy.deepcopy(module).double()
    other.training_step((BATCH[0].double(), BATCH[1]), 0).backward()
    assert {each.grad.dtype for each in other.parameters()} == {torch.float64}
    assert [each.grad for each in module.parameters()] == [None] * 5


def test_a_step_that_returns_no_loss_is_refused():
    module = classifier(Mapping)
    fill(module, 1000, 4)
    with pytest.raises(SettingError, match="training_step returns a loss"):
        module.training_step(BATCH, 0)


def sized(num_bytes):
    target = "paceline.timing.workload.SizedNetwork"
    return {"_target_": target, "name": "sized", "num_bytes": num_bytes, "num_statistics_bytes": 0}


@pytest.mark.parametrize("scheme", ["sync_allreduce", "sync_parameter_server", "local_sgd"])
def test_paced_workers_send_what_they_stand_for_and_learn_the_same(scheme, tmp_path):
    """float64: 103 weights of 8 bytes are filled up to 1,000."""
    found = {}
    for num_bytes in (8 * 103, 8 * 1000):
        settings = {"cluster__step_seconds": 0.01, "workload": sized(num_bytes)}
        folder = tmp_path / str(num_bytes)
        folder.mkdir()
        found[num_bytes] = run_tiny(tiny_point(scheme, 2, 4, **settings), folder)
    (seen, weights), (filled, of_filled) = found.values()
    assert weights.keys() == of_filled.keys()
    for name, value in weights.items():  # another place in the vector, another rounding
        torch.testing.assert_close(of_filled[name], value, rtol=1e-12, atol=1e-12)
    for own, padded in zip(seen.workers, filled.workers, strict=True):
        assert padded.bytes_sent == pytest.approx(own.bytes_sent * 1000 / 103, rel=0.01)
    assert {each.num_parameters for each in filled.training} == {103}


def test_only_paced_processes_stand_for_another_network():
    with pytest.raises(SettingError, match=r"^workload: .* only if paced"):
        point_of(tiny_point("sync_allreduce", 2, 4, workload=sized(8000)))
