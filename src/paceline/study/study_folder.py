"""The folder of a study's records, as a run of its points finds it and shares it with others."""

import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import Timeout

from paceline.errors import SettingError
from paceline.record.archive import ARCHIVE, unpack_archive
from paceline.record.reading import fault_of
from paceline.record.record import Lock, adopt, clear, left_behind, partial_records
from paceline.record.tracking.log import end_lost_run
from paceline.record.tracking.mlflow_log import LogError


def unpack(study: str, root: Path) -> None:
    """Unpack the records that were collected with the study, and that runs/ lacks."""
    archive = root / "reports" / study / ARCHIVE
    if archive.exists() and (number := unpack_archive(archive, root / "runs" / study)):
        print(f"{number} records unpacked from {archive.relative_to(root)}", flush=True)


def settle_partial_records(folder: Path, tracking_uri: str | None) -> None:
    """Keep the whole ones of the partial records that nobody makes any more; remove the others.

    Their runs in MLflow end.
    """
    for key, made in partial_records(folder):
        with left_behind(made) as left:
            if left and not adopt(made, folder / key):
                with suppress(LogError):  # MLflow then shows the run as running
                    if tracking_uri is not None:
                        end_lost_run(made, tracking_uri)
                clear(made)


@contextmanager
def one_at_a_time(folder: Path) -> Generator[None]:
    """Wait until no other process runs the points of the study, and let none begin.

    Raises SettingError("study") if the folder cannot be written.
    """
    lock = Lock(folder / ".sweep.lock")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(patience=0)
    except Timeout:
        message = f"paceline: another process runs {folder.name}: waiting for its end"
        print(message, file=sys.stderr, flush=True)
        lock.acquire(patience=-1)
    except OSError as error:
        raise SettingError("study", f"cannot write {folder}: {error.strerror or error}") from error
    try:
        yield
    finally:
        lock.release()


def tell_unfit(folders: Iterable[Path]) -> None:
    """Name the records that do not fit; a run makes each of them anew."""
    for folder in folders:
        if fault := fault_of(folder):
            print(f"paceline: {folder} does not fit, and is no record: {fault}", file=sys.stderr)
