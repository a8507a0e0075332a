"""Points for the benchmarks, composed from conf/ as the command line does."""

from pathlib import Path

from paceline.record.point import Point
from paceline.study.compose import composed

ROOT = Path(__file__).parent.parent


def point_of(*overrides: str) -> Point:
    return Point.of(composed(overrides, ROOT))
