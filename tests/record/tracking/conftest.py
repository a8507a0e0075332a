import shutil

import pytest


@pytest.fixture
def mlflow_uri(made_store, tmp_path):
    """A store of its own with the experiment `made`."""
    shutil.copy(made_store, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path}/mlflow.db"
