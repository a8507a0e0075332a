"""Keys of committed records stay, and are those of the points that experiments/ names today."""

from pathlib import Path

import pytest
import yaml

from paceline.record.archive import ARCHIVE, read_archive
from paceline.record.point_config import PointConfig
from paceline.study.study_points import study_points
from tests.tiny import REPOSITORY

ARCHIVES = sorted((REPOSITORY / "reports").glob(f"*/{ARCHIVE}"))
STUDIES = [path.parent.name for path in ARCHIVES]
FAST = ("faults", "example")
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


@pytest.mark.parametrize(
    "study",
    [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in STUDIES],
)
def test_a_study_names_points_that_have_committed_records(study, tmp_path):
    for name in ("conf", "experiments"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    committed = configs(REPOSITORY / "reports" / study / ARCHIVE).values()
    today = study_points(OF.get(study, study), tmp_path)
    assert today
    assert {key_without_rate(p.config) for p in today} <= {key_without_rate(c) for c in committed}


def key_without_rate(config: PointConfig) -> str:
    """Key in which what a tuning decides is not set, as in a point whose trials have not run."""
    if not config.is_tuned:
        return config.key
    unset = {"lr": None, "momentum": None}
    training, model = config.values["training"], config.values["model"]
    optimizer = {**model["optimizer"], **unset}
    return config.replaced(
        training={**training, **unset}, model={**model, "optimizer": optimizer}
    ).key
