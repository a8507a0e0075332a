"""A point of a sweep asks MLflow's store once, and one that is away not again."""

import pytest

from paceline.run import run_point as module
from tests.tiny import CLOCKS, point_of, tiny_point

URI = "http://127.0.0.1:9"  # where nobody answers


@pytest.fixture
def point(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mlflow = {"tracking_uri": URI, "experiment": "made"}
    return point_of(
        tiny_point("sync_allreduce", 1, 4, measurement__mlflow=mlflow, **CLOCKS["virtual"])
    )


@pytest.mark.parametrize("answers", [True, False])
def test_its_sweep_waits_for_no_store_that_is_away(answers, point, monkeypatch):
    asked = []

    def log(folder, mlflow, timeout):
        asked.append(timeout)
        return "nobody answers"

    class Follower(module.ProgressFollower):
        def __exit__(self, *error):
            super().__exit__(*error)
            self.answers = answers

    monkeypatch.setattr(module, "log", log)
    monkeypatch.setattr(module, "ProgressFollower", Follower)
    outcome = module.run_point(point, in_sweep=True)
    assert outcome.result["status"] == "finished"
    assert len(asked) == answers
    assert all(timeout <= 8 for timeout in asked)
    expected = "nobody answers" if answers else "the store did not answer"
    assert outcome.unlogged.startswith(expected)
