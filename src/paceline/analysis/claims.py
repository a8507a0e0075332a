"""Reads papers/claims.yaml: claims of papers, and the statistic of runs that tests each."""

import csv
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field

from paceline.errors import SettingError
from paceline.settings import NotNegative, settings

CLAIMS = "papers/claims.yaml"
Statistic = Literal[
    "ratio", "difference", "distance", "slope", "knee", "spread", "count", "predicted"
]
Cell = str | float | int | bool | None
Selection = dict[str, Cell | list[Cell]]
Text = Annotated[str, Field(min_length=1)]


@settings("claim")
class Claim:
    """A claim of a paper, and the statistic of runs that tests it.

    `paper`: its text is papers/<paper>.md. `source`: its table or figure. `runs`: the study whose
    runs are tested, or the path of a table of exchanges. `of`: column of their numbers;
    effective_rate is lr / (1 - momentum). `left` and `right`: selections of runs by settings.
    `along`: column of the axis of a slope or of a knee. `allowed`: what may be lost at a knee,
    relative. `least`: True for a knee where small numbers are better. `published`: ids of numbers
    in papers/published.csv. `claimed`: range of the statistic in which the claim holds; null is an
    open end. `limit`: why the claim stays open whatever its interval is. `after_runs`: True if
    its result may have been known when range or statistic were chosen. `caveat`: what limits it.
    """

    id: Text
    paper: Text
    says: Text
    source: Text
    statistic: Statistic
    claimed: tuple[float | None, float | None]
    runs: str = ""
    of: str = ""
    left: Selection = field(default_factory=dict)
    right: Selection = field(default_factory=dict)
    along: str = ""
    allowed: NotNegative = 0
    least: bool = False
    published: list[str] = field(default_factory=list)
    limit: str = ""
    after_runs: bool = False
    caveat: str = ""

    def __post_init__(self) -> None:
        needed = ["runs", "of", "left"]
        if self.statistic in ("count", "predicted"):
            needed = ["published"]
        elif self.statistic != "spread":
            needed += ["along" if self.statistic in ("slope", "knee") else "right"]
        for name in needed:
            if not getattr(self, name):
                raise SettingError(f"claims.{self.id}", f"{self.statistic} needs {name}")


def read_claims(root: Path) -> list[Claim]:
    """Read papers/claims.yaml. Raises SettingError, which names the claim, if one is not valid."""
    try:
        listed = yaml.safe_load((root / CLAIMS).read_text())
        claims = [Claim(**each) for each in listed]
    except (OSError, yaml.YAMLError, TypeError) as error:
        raise SettingError("claims", f"{CLAIMS}: {' '.join(str(error).split())}") from error
    names = [claim.id for claim in claims]
    for claim in claims:
        if names.count(claim.id) > 1:
            raise SettingError(f"claims.{claim.id}", "two claims have this id")
    return claims


def read_published(root: Path) -> Mapping[str, Mapping[str, str]]:
    """Return the rows of papers/published.csv by their id."""
    with (root / "papers/published.csv").open(newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}
