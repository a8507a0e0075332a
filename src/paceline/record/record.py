"""Record of one point on disk. A record appears whole or not at all."""

import csv
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from paceline.errors import SettingError

Result = Mapping[str, Any]  # result.json: a JSON object


def partial_folder(final: Path) -> Path:
    """Return the folder in which this process makes the record `final`."""
    return final.parent / f".{final.name}.{os.getpid()}"


class PartialRecord:
    """A record in the making: a hidden folder beside its final place, renamed when complete.

    Raises SettingError("study") and removes the folder if it cannot be written (no permission,
    disk full).
    """

    def __init__(self, final: Path) -> None:
        self.final = final
        self.folder = partial_folder(final)
        self._guard(lambda: self.folder.mkdir(parents=True, exist_ok=True))

    def write_config(self, config: Mapping[str, Any]) -> None:
        text = yaml.safe_dump(dict(config), sort_keys=False)
        self._guard(lambda: (self.folder / "config.yaml").write_text(text))

    def write_file(self, name: str, content: bytes) -> None:
        self._guard(lambda: (self.folder / name).write_bytes(content))

    def copy_files(self, source: Path, without: Collection[str]) -> None:
        """Copy the files of another record, except those of these names."""
        left = shutil.ignore_patterns(*without)
        self._guard(lambda: shutil.copytree(source, self.folder, ignore=left, dirs_exist_ok=True))

    def write_table(
        self, name: str, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]
    ) -> None:
        """Write `name`.csv with these columns; each row maps every column to a value."""

        def write() -> None:
            with (self.folder / f"{name}.csv").open("w", newline="") as file:
                writer = csv.DictWriter(file, columns, lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)

        self._guard(write)

    def complete(self, result: Result) -> None:
        """Write and sync `result.json`, then move the folder to its place.

        An older record there is removed.
        """

        def write() -> None:
            path = self.folder / "result.json"
            with path.open("w") as file:
                file.write(json.dumps(result, indent=1, allow_nan=False) + "\n")
                file.flush()
                os.fsync(file.fileno())
            if self.final.exists():
                shutil.rmtree(self.final)
            self.folder.rename(self.final)

        self._guard(write)

    def discard(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _guard(self, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError as error:
            self.discard()
            message = f"cannot write the record {self.final}: {error.strerror or error}"
            raise SettingError("study", message) from error
