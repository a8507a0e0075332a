"""Sweepers that choose the next point by what the last ones returned."""

import pytest
import yaml

from tests.command_line import results, run_anew
from tests.small_study import write_small_study


@pytest.mark.slow
def test_optuna_finds_the_rate_of_the_best_validation_accuracy(root):
    write_small_study(root, "chosen", {}, "virtual", training={"samples": 200})
    code, lines, errors = run_anew(
        root,
        *("train", "--multirun", "experiments=chosen", "hydra/sweeper=optuna"),
        *("hydra.sweeper.direction=maximize", "hydra.sweeper.n_trials=5"),
        *("hydra.sweeper.n_jobs=2", "hydra.sweeper.sampler.seed=1", "sweep.jobs=auto"),
        "training.lr=interval(0.0001,0.5)",
    )
    assert (code, len(lines)) == (0, 5)
    assert [line for line in errors if "new study created" not in line] == []
    tried = {result["lr"]: result["top1"] for result in results(root, "chosen")}
    found = yaml.safe_load((root / "runs/chosen/optimization_results.yaml").read_text())
    assert len(set(tried.values())) > 1
    assert found["best_value"] == max(tried.values())
    assert tried[found["best_params"]["training.lr"]] == max(tried.values())


@pytest.mark.slow
def test_a_trial_that_diverges_does_not_end_the_search(root):
    write_small_study(root, "chosen", {}, "virtual", training={"samples": 200})
    code, lines, _ = run_anew(
        root,
        *("train", "--multirun", "experiments=chosen", "hydra/sweeper=optuna"),
        *("hydra.sweeper.direction=maximize", "hydra.sweeper.n_trials=4"),
        *("hydra.sweeper.n_jobs=1", "hydra.sweeper.sampler.seed=1"),
        "training.lr=choice(0.05,100000)",
    )
    assert (code, len(lines)) == (0, 4)
    found = {result["lr"]: result["status"] for result in results(root, "chosen")}
    assert found.keys() == {0.05, 100000}
    assert found[100000] == "diverged"
