import shutil

import pytest

from paceline.record.tracking.mlflow_log import prepare_store


@pytest.fixture(scope="session")
def _made_store(tmp_path_factory):
    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    prepare_store(f"sqlite:///{path}", "made")  # 1.5 s for MLflow's migrations
    return path


@pytest.fixture
def mlflow_uri(_made_store, tmp_path):
    """A store of its own with the experiment `made`."""
    shutil.copy(_made_store, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path}/mlflow.db"
