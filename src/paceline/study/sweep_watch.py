"""Watch over a sweep by the folders of its records, which points write wherever they run."""

from collections.abc import Sequence
from pathlib import Path

from paceline.record.ownership import partial_records
from paceline.record.reading import read_result, record_version
from paceline.record.record import Result
from paceline.record.tracking.run_label import run_label
from paceline.study.preview import Costs, duration, finished_results
from paceline.study.progress import read_progress
from paceline.study.status_line import Status
from paceline.study.study_points import StudyPoint


class SweepWatch:
    """Watch over the points of a study that run, stage by stage.

    `runs`: folder of all records. `jobs`: number of points at a time.
    """

    def __init__(self, study: str, runs: Path, jobs: int) -> None:
        self._runs, self._folder, self._jobs = runs, runs / study, jobs
        self._costs: Costs | None = None

    def begin(
        self,
        stage: str,
        points: Sequence[StudyPoint],
        to_run: Sequence[StudyPoint],
        later: Sequence[StudyPoint],
    ) -> None:
        """Watch the points of a stage, of which those `to_run` are not done, then those `later`."""
        self._stage, self._later = stage, later
        self._points = {point.key: point for point in points}
        self._before = {point.key: record_version(point.folder) for point in to_run}
        self._results: dict[str, Result] = {
            point.key: point.result
            for point in points
            if point.result and point.key not in self._before
        }

    def status(self) -> Status:
        """Return the state of the present stage."""
        self._read_new_results()
        shares = self._running()
        num_done, count = len(self._results), len(self._points)
        parts = [f"{num_done} of {count} points"]
        if self._later:
            parts.append(f"then {len(self._later)} more")
        parts += [*self._left(shares), *self._best()]
        done = (num_done + sum(shares.values())) / count
        return Status(self._stage, done, ", ".join(parts))

    def _read_new_results(self) -> None:
        if self._costs is None:
            self._costs = Costs(finished_results(self._runs))
        for key, before in self._before.items():
            point = self._points[key]
            if key not in self._results and record_version(point.folder) not in (None, before):
                if (result := read_result(point.folder)) is None:
                    continue  # not whole yet, or unfit
                self._results[key] = result
                if result["status"] == "finished":
                    self._costs.add(result)

    def _running(self) -> dict[str, float]:
        """Return the share that is done of each point under way."""
        shares = {}
        for key, folder in partial_records(self._folder):
            progress = read_progress(folder)
            if progress and key in self._points and key not in self._results:
                shares[key] = min(progress.share, 1.0)
        return shares

    def _left(self, shares: dict[str, float]) -> list[str]:
        assert self._costs is not None
        left = [point for key, point in self._points.items() if key not in self._results]
        seconds = [
            (1 - shares.get(point.key, 0.0), self._costs.seconds(point))
            for point in (*left, *self._later)
        ]
        known = [share * each for share, each in seconds if each is not None]
        if not known:
            return []
        unknown = len(seconds) - len(known)
        more = f" and {unknown} points of unknown length" if unknown else ""
        return [f"about {duration(sum(known) / self._jobs)} left{more}"]

    def _best(self) -> list[str]:
        finished = [key for key, each in self._results.items() if each["status"] == "finished"]
        if not finished:
            return []
        key = max(finished, key=lambda key: self._results[key]["top1"])
        point, top1 = self._points[key], self._results[key]["top1"]
        return [f"best so far {run_label(point.config.values, list(point.axes))}: {top1:.2%} top-1"]
