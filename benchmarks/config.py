"""Configurations for the benchmarks, composed from conf/ as the command line does."""

from pathlib import Path
from typing import Any

from paceline.study.compose import composed

ROOT = Path(__file__).parent.parent


def config(*overrides: str) -> dict[str, Any]:
    return composed(overrides, ROOT)
