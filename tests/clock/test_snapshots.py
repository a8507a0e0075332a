"""A snapshot is of the weights at its time, whatever becomes of them."""

import pytest

from tests.tiny import run_tiny, tiny_point


@pytest.mark.parametrize("scheme", ["sync_allreduce", "sync_parameter_server", "local_sgd"])
def test_both_clocks_evaluate_the_same_weights(scheme, tmp_path):
    def losses(cluster):
        folder = tmp_path / cluster
        folder.mkdir()
        seen, _ = run_tiny(tiny_point(scheme, 2, 4, cluster), folder)
        scores = [score for each in seen.training for score in each.scores]
        return {score.samples: score.loss for score in scores}

    real, virtual = losses("local"), losses("virtual")
    assert real == pytest.approx(virtual, rel=1e-9)
    assert len({*real.values()}) == len(real) == 3
