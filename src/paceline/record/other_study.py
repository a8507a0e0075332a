"""Records of a point that another study has already: one training is enough for both."""

from collections.abc import Collection
from pathlib import Path

from paceline.record.point_config import PointConfig
from paceline.record.reading import read_result
from paceline.record.record import PartialRecord, Result


def record_elsewhere(folder: Path, digest: str) -> Path | None:
    """Return the folder of a record of the same point in another study of the same runs/.

    `folder`: runs/<study>/<key> of the point. `digest`: `source_digest()` of the present source,
    which made the record. It is of a virtual clock, whose times are the same at any hour and
    beside any other run; those of real processes are not.
    """
    for path in sorted(folder.parent.parent.glob(f"[!.]*/{folder.name}/result.json")):
        result = read_result(path.parent)
        if path.parent != folder and result and _can_be_shared(result, digest):
            return path.parent
    return None


def copy_record(source: Path, folder: Path, config: PointConfig, without: Collection[str]) -> None:
    """Copy the record in `source` to `folder`, under the study and the settings of `config`.

    `without`: names of files that stay behind. The copy appears whole or not at all. Raises
    SettingError("study") if it cannot be written.
    """
    result = read_result(source)
    assert result is not None
    partial = PartialRecord(folder)
    partial.copy_files(source, without)
    partial.write_config(config.values)
    partial.complete({**result, "study": config.study, **config.names})


def _can_be_shared(result: Result, digest: str) -> bool:
    ended = result["status"] in ("finished", "diverged")
    return ended and result["kind"] == "virtual" and result["source_digest"] == digest
