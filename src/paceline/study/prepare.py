"""Preparation of a study's data, which is verified or downloaded before any point runs."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from paceline.data.image_set import ImageSet
from paceline.record.target import Target
from paceline.run.run_point import prepare_data
from paceline.study.study_points import study_points

Description = dict[str, object]  # a JSON object


def prepare(study: str, root: Path, overrides: Sequence[str] = ()) -> Path:
    """Prepare every data set that `study` names; return the path `data/<study>.json`.

    This file contains the settings and checksums of the images, so that it changes when they do. A
    DataModule of another package prepares itself in the workers and has no checksum.
    """
    descriptions: list[Description] = []
    prepared: list[Target] = []
    for point in study_points(study, root, overrides):
        data = point.config.target("data")
        if data not in prepared:
            prepared.append(data)
            descriptions.append(_prepare(point.config.names["data"], data))
    path = root / "data" / f"{study}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(descriptions, indent=1) + "\n")
    return path


def _prepare(name: str, data: Target) -> Description:
    """Prepare one data set and describe it."""
    settings = {setting: value for setting, value in data.values.items() if setting != "root"}
    images = prepare_data(data)
    if images is None:
        return {"name": name, "settings": settings}
    splits = images.load()
    sums = {part: _checksum(getattr(splits, part)) for part in ("train", "validation", "test")}
    return {"name": name, "settings": settings, **sums}


def _checksum(part: ImageSet) -> Description:
    digest = hashlib.sha256(part.images.numpy().data)
    digest.update(part.labels.numpy().data)
    return {"images": len(part), "sha256": digest.hexdigest()}
