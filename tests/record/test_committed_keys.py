"""Keys of committed records stay, and are those of the points that experiments/ names today."""

import math
from pathlib import Path

import pytest
import yaml

from paceline.record.archive import ARCHIVE, read_archive
from paceline.record.key import key_of
from paceline.record.point_config import PointConfig
from paceline.study import compose
from paceline.study.study_points import study_points
from tests.tiny import REPOSITORY

ARCHIVES = sorted((REPOSITORY / "reports").glob(f"*/{ARCHIVE}"))
STUDIES = [path.parent.name for path in ARCHIVES]
FAST = ("five_ways", "example")
OF = {"example": "quick"}  # a report of a study under another name
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def configs(archive: Path) -> dict[str, PointConfig]:
    """The settings of each record of a study, by the name of its folder."""
    return {
        key: PointConfig(yaml.load(content, LOADER))
        for key, content in read_archive(archive)["config.yaml"].items()
    }


@pytest.mark.parametrize("archive", ARCHIVES, ids=STUDIES)
def test_the_settings_of_a_committed_record_still_have_its_key(archive):
    found = configs(archive)
    assert found
    assert [config.key for config in found.values()] == list(found)


EQUAL = [
    *((f"training.{name}", 2, 2.0) for name in ("lr", "momentum", "epochs")),
    ("training.milestones", [0.5], (0.5,)),
    ("model.width", 2, 2.0),
    ("cluster.link.latency", 0, -0.0),
    *(("cluster.link.bandwidth", value, float(value)) for value in (125_000_000, 100_000_000, 4)),
    ("cluster.link.bandwidth", None, math.inf),
    ("cluster.message_bandwidth", {8: 4}, {8: 4.0}),
]
DIFFERENT = [
    ("training.lr", 1, 1.0000001),
    ("save_weights", 1, True),
    ("model.width", 1, "1"),
    ("cluster.link.bandwidth", 1e8, 1.25e8),
    ("cluster.server_bandwidth", 4, None),
]


def key_with(setting, value):
    values = {"workers": 1, "cluster": {"link": {}}, "training": {}, "model": {}}
    *groups, name = setting.split(".")
    inner = values
    for group in groups:
        inner = inner[group]
    inner[name] = value
    return key_of(values)


def test_equal_values_have_one_key_however_they_are_written():
    for setting, one, other in EQUAL:
        assert key_with(setting, one) == key_with(setting, other), setting
    for setting, one, other in DIFFERENT:
        assert key_with(setting, one) != key_with(setting, other), setting


@pytest.mark.parametrize(
    "study",
    [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in STUDIES],
)
def test_a_study_names_points_that_have_committed_records(study, tmp_path, monkeypatch):
    monkeypatch.setattr(compose, "num_cores", lambda: 2)  # of the machine of the example
    monkeypatch.setattr("paceline.cluster.cluster.num_gpus", lambda: 0)
    for name in ("conf", "experiments"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    committed = configs(REPOSITORY / "reports" / study / ARCHIVE).values()
    today = study_points(OF.get(study, study), tmp_path)
    assert today
    trials = [config.values.get("trial") or {} for config in committed]
    own = {name.partition(".")[2] for trial in trials for name, _ in trial.get("own", ())}
    keys = {key_without_search(config, own) for config in committed}
    assert {key_without_search(point.config, own) for point in today} <= keys


def key_without_search(config: PointConfig, own: set[str]) -> str:
    """Key in which what a tuning decides is not set, as in a point whose trials have not run.

    `own`: names of the settings of schemes that it decides.
    """
    if not config.is_tuned:
        return config.key
    unset = {"lr": None, "momentum": None}
    training, model = config.values["training"], config.values["model"]
    optimizer = {**model["optimizer"], **unset}
    scheme = {name: None if name in own else v for name, v in config.values["scheme"].items()}
    return config.replaced(
        training={**training, **unset}, model={**model, "optimizer": optimizer}, scheme=scheme
    ).key
