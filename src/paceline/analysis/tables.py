"""Reads the tables of a study from its report and from the archive of its records."""

import csv
import io
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from paceline.analysis.configuration import finished
from paceline.analysis.frames import Frame, Row, read_table, typed_table
from paceline.errors import SettingError
from paceline.record.archive import ARCHIVE, Files, read_archive
from paceline.record.fields import numbers_in
from paceline.record.report_files import read_about
from paceline.record.result import ResultFields
from paceline.record.rows import POINT_TABLES, StudyState

_NEEDED = ("key", "status", "reason", "kind", "scheme", "data", "workers", "batch_size", "seed")
_NEEDED += ("images_per_second", "top1", "test_top1", "validation_loss", "seconds", "updates")
CURVE_IMAGES = "measurement.curve_images"  # images of an evaluation but the final one
_STRONG = "global_batch_size"  # axis of a study of strong scaling
LATE = 0.01  # share of the steps of workers with emulated step times that may exceed these


@dataclass(frozen=True, eq=False)
class Tables:
    """Tables of a study, from its report and the archive of its records.

    `about` is study.json. `runs` has one row per point (a single run), in the order of the study.
    The `archive` is read when a table of it is first needed, since that takes a second. A table
    that the study lacks has no rows.
    """

    about: StudyState
    runs: Frame
    predictions: Frame
    tuning: Frame
    archive: Path

    @cached_property
    def _files(self) -> Files:
        return read_archive(self.archive)

    def of_points(self, name: str, keys: Frame) -> Frame:
        """Return a table of POINT_TABLES with any number of rows for each point in `keys`.

        It has their `key`; cells of a table or column that a record lacks are empty.
        """
        (table,) = (each for each in POINT_TABLES if each.name == name)
        files, own = self._files[f"{name}.csv"], ",".join(table.columns)
        text = io.StringIO()
        joined = csv.DictWriter(text, ["key", *table.columns], lineterminator="\n")
        joined.writeheader()
        try:
            for key in keys[keys.isin([*files])]:
                content = files[key].decode()
                header, _, rows = content.partition("\n")
                if header == own:  # ten times as fast
                    text.writelines(f"{key},{row}\n" for row in rows.splitlines())
                else:
                    read = csv.DictReader(io.StringIO(content))
                    joined.writerows({"key": key, **row} for row in read)
            return typed_table(text.getvalue().encode(), numbers_in(table.row))
        except ValueError as error:
            message = f"all {name}.csv of {ARCHIVE} together are damaged: {error}"
            raise SettingError("study", message) from error

    @cached_property
    def curves(self) -> Frame:
        """Evaluations during training, which are all on the same images.

        A final evaluation on more images is left out.
        """
        return _on_equal_images(self.of_points("curve", self.runs["key"]), self)

    @cached_property
    def phases(self) -> Frame:
        """Seconds that each worker of each point spent in each phase of its steps."""
        return self.of_points("phases", self.runs["key"])

    @property
    def is_strong(self) -> bool:
        """True if scaling is strong: all workers share a constant number of images per step."""
        return _STRONG in self.about["axes"]

    @property
    def axes(self) -> list[str]:
        """Columns of `runs` that identify a configuration: all axes of the study but the seed."""
        return ["scheme", *self.facets, "workers"]

    @cached_property
    def facets(self) -> list[str]:
        """Axes other than scheme, workers and seed, without settings that the scheme determines.

        The first facet is always the batch size, even if the study does not vary it:
        global_batch_size in a study of strong scaling, else batch_size.
        """
        batch = _STRONG if self.is_strong else "batch_size"
        core = ("scheme", batch, "workers", "seed")
        names = [name for name in self.about["axes"] if name not in core]
        implied = [
            name
            for name in names
            if name.startswith("scheme.")
            and self.runs.groupby("scheme")[name].nunique(dropna=False).max() == 1
        ]
        return [batch, *(name for name in names if name not in implied)]

    @property
    def margin(self) -> float:
        """Largest difference of accuracies that the study calls equal, as a share."""
        return self.about["margin"] / 100

    @property
    def tuned_at(self) -> Row:
        """Those axes that had the same value in all trials of tuning, with this value."""
        searches = self.about["tuning"] or [{"at": {}}]
        return {n: value for n, value in searches[0]["at"].items() if n in self.axes}

    def curve(self, key: str) -> Frame:
        """Return the evaluations of the point `key`, sorted by samples; no rows if it has none."""
        return self._curves_by_key.get(key, self.curves.iloc[:0])

    @cached_property
    def _curves_by_key(self) -> dict[str, Frame]:
        if not len(self.curves):
            return {}
        curves = self.curves.sort_values("samples", kind="stable")
        return dict(iter(curves.groupby("key", sort=False)))

    @cached_property
    def finished(self) -> Frame:
        """Points that finished; means contain only these, and other points are counted."""
        return finished(self.runs)


def read_tables(folder: Path) -> Tables:
    """Read the tables of the study in `folder`, reports/<study>.

    Raises SettingError("study"), which names the command to run first, if a table or a column is
    missing, or if there is no point.
    """
    first, numbers = f"paceline sweep {folder.name}", numbers_in(ResultFields)
    tables = Tables(
        about=read_about(folder, first),
        runs=read_table(folder / "runs.csv", first, numbers),
        predictions=_read_predictions(folder / "predictions.csv"),
        tuning=read_table(folder / "tuning.csv", first, numbers | {"chance"}),
        archive=folder / ARCHIVE,
    )
    missing = [n for n in (*_NEEDED, *tables.axes) if n not in tables.runs]
    if missing or tables.runs.empty:
        what = f"has no column {missing[0]}" if missing else "has no point"
        message = f"{folder / 'runs.csv'} {what}; first: {first}"
        raise SettingError("study", message)
    return tables


def _on_equal_images(curves: Frame, tables: Tables) -> Frame:
    """Return `curves` without the final evaluation of each run that used more images for it."""
    runs, everywhere = tables.runs, tables.about["settings"]
    fewer = runs.get(CURVE_IMAGES, pd.Series(everywhere.get(CURVE_IMAGES), runs.index))
    fewer = runs[pd.Series(pd.to_numeric(fewer, errors="coerce"), runs.index).notna()]
    if fewer.empty:
        return curves
    ends = fewer.set_index("key")["samples"]
    single = curves.groupby("key")["key"].transform("size") == 1 if len(curves) else False
    return curves[single | (curves["samples"] != curves["key"].map(ends))]


def _read_predictions(path: Path) -> Frame:
    if not path.exists():
        return pd.DataFrame(columns=["key"])
    first = f"paceline predict --study {path.parent.name}"
    numbers = ("free_images_per_second", "staleness_distance", "staleness_p")
    table = read_table(path, first, (*numbers, "images_per_second"))
    if "half" not in table:
        raise SettingError("study", f"{path} has no column half; first: {first}")
    return table


def varying(tables: Tables) -> list[str]:
    """Return the facets that have several values and do not follow from the kind of the point."""
    implied = implied_by_kind(tables)
    axes = [axis for axis in tables.facets if axis not in implied]
    return [axis for axis in axes if tables.runs[axis].nunique(dropna=False) > 1]


def implied_by_kind(tables: Tables) -> list[str]:
    """Return the axes of the cluster that have one value per kind; none if all kinds are equal."""
    kinds = tables.runs.groupby("kind")
    if len(kinds) < 2:
        return []
    return [axis for axis in clock_axes(tables) if kinds[axis].nunique(dropna=False).max() == 1]


def implied_by_scheme(tables: Tables) -> Frame:
    """Return a row per scheme, with those of its settings that have one value in the study."""
    names = [name for name in tables.about["axes"] if name.startswith("scheme.")]
    names = [name for name in names if name in tables.runs and name not in tables.axes]
    own = tables.runs[["scheme", *names]]
    return own.groupby("scheme", sort=False).head(1).reset_index(drop=True)


def clock_axes(tables: Tables) -> list[str]:
    """Return the axes whose values determine whether a run is on the virtual or the wall clock.

    That is `cluster` if it is an axis. Else it is each axis `cluster.*` none of whose values occurs
    on both clocks.
    """
    axes = [axis for axis in tables.axes if axis.startswith("cluster")]
    if "cluster" in axes:
        return ["cluster"]
    on_virtual = tables.runs["kind"] == "virtual"
    return [
        axis
        for axis in axes
        if on_virtual.groupby(tables.runs[axis], dropna=False).nunique().max() == 1
    ]


def late_share(runs: Frame) -> Frame:
    """Return for each run the share of its workers' steps that exceeded their emulated times."""
    images = runs["samples"].astype(float) + runs["dropped_samples"].astype(float)
    return runs["late_steps"].astype(float) * runs["batch_size"] / images
