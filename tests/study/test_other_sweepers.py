"""Sweepers that choose the next point by what the last ones returned."""

import pytest
import yaml

from tests.command_line import results, run_anew
from tests.small_study import write_small_study

pytestmark = pytest.mark.slow


def searched(root, rates, trials, jobs):
    """The lines of a search by optuna for the rate with the best validation accuracy."""
    write_small_study(root, "chosen", {}, "virtual", training={"samples": 200})
    code, lines, errors = run_anew(
        root,
        *("train", "--multirun", "experiments=chosen", "hydra/sweeper=optuna"),
        *("hydra.sweeper.direction=maximize", f"hydra.sweeper.n_trials={trials}"),
        *(f"hydra.sweeper.n_jobs={jobs}", "hydra.sweeper.sampler.seed=1", "sweep.jobs=auto"),
        f"training.lr={rates}",
    )
    told = yaml.safe_load((root / "runs/chosen/optimization_results.yaml").read_text())
    best, rate = 100 * told["best_value"], told["best_params"]["training.lr"]
    assert (code, len(lines)) == (0, trials + 1)
    assert lines[-1] == f"best: validation top-1 {best:.2f} %, training.lr={rate}"
    assert [line for line in errors if "new study created" not in line] == []
    return results(root, "chosen")


def test_optuna_finds_the_rate_of_the_best_validation_accuracy(root):
    found = searched(root, "interval(0.0001,0.5)", trials=5, jobs=2)
    tried = {result["lr"]: result["top1"] for result in found}
    best = yaml.safe_load((root / "runs/chosen/optimization_results.yaml").read_text())
    assert len(set(tried.values())) > 1
    assert best["best_value"] == max(tried.values())
    assert tried[best["best_params"]["training.lr"]] == max(tried.values())


def test_a_trial_that_diverges_does_not_end_the_search(root):
    found = searched(root, "choice(0.05,100000)", trials=4, jobs=1)
    ended = {result["lr"]: result["status"] for result in found}
    assert ended.keys() == {0.05, 100000}
    assert ended[100000] == "diverged"
