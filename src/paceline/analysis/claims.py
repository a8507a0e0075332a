"""Reads claims/<paper>.yaml: what a paper says, and how this project tests it.

A claim names published numbers by their id in papers/published.csv, and never contains their
values. It also names the study with the runs that test it, and the selections of these runs.
"""

import csv
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated, Literal, get_args

import yaml
from pydantic import AwareDatetime, Field

from paceline.errors import SettingError
from paceline.settings import NotNegative, settings

Kind = Literal["measured", "paced", "virtual", "predicted", "exact"]
TestName = Literal[
    "equal",
    "differ",
    "greater",
    "ratio",
    "slope",
    "law_of_growth",
    "knee",
    "count",
    "exact",
    "none",
]
NotJudged = Literal["from memory", "not a claim of the paper", "held by a test of the code"]
NOT_JUDGED: tuple[NotJudged, ...] = get_args(NotJudged)
# Reasons for which the best verdict is out of reach
_Cap = Literal["no size is published", "settings are not stated", "cores are shared", "our scale"]
Limit = _Cap | NotJudged
Cell = str | float | int | bool | None
Selection = dict[str, Cell | list[Cell]]
Text = Annotated[str, Field(min_length=1)]
PREDICT = "paceline predict --published"
PREDICTIONS = "predictions"  # as a study: of `paceline predict --published`
COLLECTIVES = "collectives"  # as a study: of the benchmark
WORKLOADS = "workloads"  # as a study: counted networks in conf/workload
TESTS = "tests"  # as a study: of the code, which need no table
PUBLISHED = "papers/published.csv"
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "days": 86400.0}
_OF_TWO = ("equal", "differ", "ratio")
_WITH_MARGIN = ("equal", "differ", "count", "exact", "law_of_growth")
_ALONG = ("slope", "law_of_growth", "knee")


@settings("claim")
class Claim:
    """One claim of a paper, and its test.

    `says`: the claim in one sentence, in which {0}, {1} stand for its published numbers in order.
    `published`: ids of the paper's numbers. `in_the_way`: what made the test hard. `study`: file in
    experiments/ whose runs are tested, PREDICTIONS, COLLECTIVES, WORKLOADS; "" if none is tested.
    `minutes`: cost of that study on two cores. `command`: what makes its tables, if it is not
    `paceline sweep <study>`. `of`: column that is compared; effective_rate is lr / (1 - momentum).
    `left` and `right`: selections of runs by settings. `steps`: selections, of which each must be
    above the one before. `along`: column of the axis of a law or of a knee. `size`: ids of the
    numbers that give the claimed ratio: one, or two to be divided. `claimed`: range of the result
    in which the claim holds; null is an open end.
    `margin`: what counts as equal, relative to the published size for a ratio; the largest relative
    residual of a law of growth; what may be lost at a knee. `least`: True for a knee where small
    values are better. `limit` and `because`: why the best verdict is out of reach.
    `untestable`: why the claim cannot be tested here. `registered`: time of the commit since
    which the test is as it is, if it is not that of the file.
    """

    id: Text
    says: Text
    in_the_way: str = ""
    kind: Kind | None = None
    published: list[str] = field(default_factory=list)
    study: str = ""
    minutes: NotNegative = 0
    command: str = ""
    test: TestName = "none"
    of: str = ""
    left: Selection = field(default_factory=dict)
    right: Selection = field(default_factory=dict)
    steps: list[Selection] = field(default_factory=list)
    along: str = ""
    size: Annotated[list[str], Field(max_length=2)] = field(default_factory=list)
    claimed: tuple[float | None, float | None] | None = None
    margin: NotNegative | None = None
    least: bool = False
    limit: Limit | None = None
    because: str = ""
    untestable: str = ""
    registered: AwareDatetime | None = None

    def __post_init__(self) -> None:
        test, of_runs = self.test, not self.is_predicted
        has_margin = self.margin is not None
        lacks = {
            "study or untestable": bool(self.study) == bool(self.untestable),
            "kind": not self.untestable and self.kind is None,
            "a test, or untestable": of_runs
            and not (self.untestable or test != "none" or self.study == TESTS),
            "a limit of what is not judged, for tests of the code": self.study == TESTS
            and self.limit not in NOT_JUDGED,
            "published numbers with a margin": self.is_predicted
            and not (self.published and has_margin),
            "because, with limit": bool(self.limit) != bool(self.because),
            "of": of_runs and test not in ("none", "count") and not self.of,
            "along": (test in _ALONG) != bool(self.along),
            "left": of_runs and test in (*_OF_TWO, "exact") and not self.left,
            "right": of_runs and test in _OF_TWO and not self.right,
            "steps": of_runs and test == "greater" and len(self.steps) < 2,
            "margin": test in _WITH_MARGIN and not has_margin,
            "size with margin, or claimed": of_runs
            and test == "ratio"
            and self.claimed is None
            and not (self.size and has_margin),
            "claimed": of_runs and test in ("slope", "knee") and self.claimed is None,
        }
        for name in (name for name, is_lacking in lacks.items() if is_lacking):
            raise SettingError(f"claims.{self.id}", f"it needs {name}")

    @property
    def is_predicted(self) -> bool:
        return self.kind == "predicted"

    @property
    def repeat(self) -> str:
        """Command that makes the tables that test the claim."""
        made = PREDICT if self.study == PREDICTIONS else f"paceline sweep {self.study}"
        return self.command or (self.study and made)


@settings("beside")
class Beside:
    """A figure of the paper, redrawn with our runs beside.

    `study`: whose runs are shown. `of`: their column; `inverse`: True to show 1 / column. `runs`:
    selections of runs by the id of the published number beside which they stand. `relative_to`: id
    of the number by which all are divided, since scales differ. `inverse_of_theirs`: True for times
    that are shown as speeds. `top1`: column of the accuracy of our runs, to be shown beside.
    """

    title: Text
    caption: Text
    study: Text
    of: Text
    where: Selection
    runs: dict[str, Selection | None]
    relative_to: Text
    inverse: bool = False
    inverse_of_theirs: bool = False
    top1: str = ""


@settings("claims")
class Paper:
    """A paper: its claims, the main one first, and the set-up of its experiments beside ours.

    `rows`: its name in papers/published.csv. `sources`: what of it was at hand. `set_up`: for each
    part of an experiment theirs, and ours. `tables`: captions of those of its experiments in
    papers/published.csv that are shown.
    """

    id: Text
    paper: Text
    short: Text
    rows: Text
    doi: Text
    sources: Text
    set_up: dict[str, tuple[Text, Text]]
    registered: AwareDatetime
    claims: Annotated[list[Claim], Field(min_length=1)]
    tables: dict[str, Text] = field(default_factory=dict)
    figures: list[Beside] = field(default_factory=list)


class Published:
    """Published numbers: rows of papers/published.csv by id."""

    def __init__(self, root: Path) -> None:
        path = root / PUBLISHED
        if not path.is_file():
            raise SettingError("papers", f"there is no {path}; it is in Paceline's repository")
        with path.open(newline="") as file:
            self.rows: dict[str, dict[str, str]] = {row["id"]: row for row in csv.DictReader(file)}

    def row(self, name: str, claim: str) -> Mapping[str, str]:
        if name not in self.rows:
            raise SettingError(f"claims.{claim}", f"{PUBLISHED} has no {name}")
        return self.rows[name]

    def size(self, claim: Claim) -> float | None:
        """Return the claimed ratio: a published number, or the first of two over the second."""
        found = [self.row(name, claim.id) for name in claim.size]
        values = [float(row["value"]) * _SECONDS.get(row["unit"], 1) for row in found]
        if len({row["unit"] in _SECONDS or row["unit"] for row in found}) > 1:
            raise SettingError(f"claims.{claim.id}", "size divides numbers of different units")
        return values[0] / values[1] if len(values) == 2 else (values or [None])[0]


def read_papers(root: Path) -> list[Paper]:
    """Read claims/*.yaml. Raises SettingError, which names the file, for one that is not valid."""
    files = sorted((root / "claims").glob("*.yaml"))
    if not files:
        raise SettingError("claims", f"there is no file {root / 'claims'}/<paper>.yaml")
    papers = [_read(path) for path in files]
    names = [claim.id for paper in papers for claim in paper.claims]
    for name in {name for name in names if names.count(name) > 1}:
        raise SettingError(f"claims.{name}", "two claims have this id")
    return papers


def _read(path: Path) -> Paper:
    try:
        content = yaml.safe_load(path.read_text())
        claims = [Claim(**each) for each in content.pop("claims")]
        figures = [Beside(**each) for each in content.pop("figures", [])]
        return Paper(id=path.stem, claims=claims, figures=figures, **content)
    except (yaml.YAMLError, TypeError, AttributeError, KeyError, SettingError) as error:
        fault = getattr(error, "message", None) or " ".join(str(error).split())
        name = getattr(error, "setting", "claims")
        raise SettingError(name, f"{path.name}: {fault}") from error
