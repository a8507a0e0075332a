"""`save_weights=true` leaves the evaluated weights for plain torch."""

import pytest

from paceline.model.score import score
from tests.tiny import batches_of, run_tiny, tiny_network, tiny_point


@pytest.mark.parametrize("scheme", ["sync_allreduce", "async_parameter_server"])
def test_a_plain_network_loads_them_and_scores_the_same(scheme, tmp_path):
    network = {"_target_": "tests.tiny.tiny_network", "batch_norm": True}
    config = tiny_point(scheme, 2, 4, model__network=network)
    seen, weights = run_tiny(config, tmp_path)
    plain = tiny_network(batch_norm=True).double()
    plain.load_state_dict(weights)
    scores = [score for each in seen.training for score in each.scores]
    last = max(scores, key=lambda score: score.samples)
    everything = batches_of({**config, "workers": 1, "batch_size": 48}, 0)[0]
    again = score(plain, [everything], "cpu")
    assert again.top1 == last.top1
    assert again.loss == pytest.approx(last.loss, rel=1e-9)


def test_without_the_setting_there_are_none(tmp_path):
    config = tiny_point("async_parameter_server", 1, 4, save_weights=False, training__epochs=1)
    with pytest.raises(FileNotFoundError):
        run_tiny(config, tmp_path)
    assert not list(tmp_path.glob("*.pt"))
