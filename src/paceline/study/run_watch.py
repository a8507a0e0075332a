"""Watch over one run: how much of its budget is done, and how long the rest takes."""

from pathlib import Path

from paceline.study.preview import duration
from paceline.study.progress import Progress, read_progress
from paceline.study.status_line import Status


class RunWatch:
    """Watch over the partial record `folder`. `name`: of the run; `kind`: of its images/s."""

    def __init__(self, name: str, kind: str, folder: Path) -> None:
        self._name, self._kind, self._folder = name, kind, folder
        self._first: Progress | None = None

    def status(self) -> Status:
        """Return the state of the run, which has begun when it has trained for a second."""
        now = read_progress(self._folder)
        if now is None:
            return Status(self._name, None, "starting")
        self._first = self._first or now
        rate = now.images_per_second
        parts = [
            "evaluating" if now.share >= 1 else self._left(self._first, now),
            f"training loss {now.train_loss:.4g}",
            f"{rate:,.0f} images/s {self._kind}" if rate is not None else "",
        ]
        return Status(self._name, min(now.share, 1.0), ", ".join(filter(None, parts)))

    def _left(self, first: Progress, now: Progress) -> str:
        done = now.share - first.share
        if done <= 0:
            return ""
        return f"{duration((1 - now.share) * (now.time - first.time) / done)} left"
