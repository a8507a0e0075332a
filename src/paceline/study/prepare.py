"""The data of a study, found or downloaded before anything runs."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from paceline.data.image_set import ImageSet
from paceline.record.target import Target
from paceline.run.run_point import prepare_data
from paceline.study.study_points import study_points

Described = dict[str, object]  # a JSON object


def prepare(study: str, root: Path, overrides: Sequence[str] = ()) -> Path:
    """Prepare every data set that `study` names; returns `data/<study>.json`.

    It holds settings and checksums of the images, so that it changes when they do. Anybody's
    DataModule prepares itself in the workers and has no checksum here.
    """
    described: list[Described] = []
    seen: list[Target] = []
    for point in study_points(study, root, overrides):
        data = point.config.data
        if data not in seen:
            seen.append(data)
            described.append(_prepared(point.config.names["data"], data))
    path = root / "data" / f"{study}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(described, indent=1) + "\n")
    return path


def _prepared(name: str, data: Target) -> Described:
    settings = {setting: value for setting, value in data.values.items() if setting != "root"}
    images = prepare_data(data)
    if images is None:
        return {"name": name, "settings": settings}
    splits = images.load()
    sums = {part: _checksum(getattr(splits, part)) for part in ("train", "validation", "test")}
    return {"name": name, "settings": settings, **sums}


def _checksum(part: ImageSet) -> Described:
    digest = hashlib.sha256(part.images.numpy())
    digest.update(part.labels.numpy())
    return {"images": len(part), "sha256": digest.hexdigest()}
