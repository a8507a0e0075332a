import shutil
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).parent.parent.parent
DATA = {"_target_": "made.Data", "root": "data", "num_classes": 10, "image_shape": [1, 28, 28]}


@pytest.fixture
def root(tmp_path):
    """The real conf/ with data of its own, and one study: 2 schemes x 2 seeds."""
    shutil.copytree(REPOSITORY / "conf", tmp_path / "conf")
    (tmp_path / "conf/data/made.yaml").write_text(yaml.safe_dump(DATA))
    write_study(tmp_path, scheme="sync_allreduce,async_parameter_server", seed="0,1")
    return tmp_path


@pytest.fixture
def store(root, made_store):
    """The store that the studies of `root` are logged to, which has no run yet."""
    shutil.copy(made_store, root / "mlflow.db")
    return f"sqlite:///{root}/mlflow.db"


def write_study(root, name="made", settings=None, **params):
    study = {
        "defaults": [{"override /data": "made"}],
        "study": name,
        "question": "Does it?",
        "training": {"epochs": 2},
        "measurement": {"mlflow": {"tracking_uri": f"sqlite:///{root}/mlflow.db"}},
        "hydra": {"sweeper": {"params": params}},
        **(settings or {}),
    }
    path = root / "experiments" / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text("# @package _global_\n" + yaml.safe_dump(study, sort_keys=False))


@pytest.fixture
def studied(root):
    """Writes another study, or other axes: `studied(name, settings, **params)`."""
    return lambda *about, **params: write_study(root, *about, **params)
