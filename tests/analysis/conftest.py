import pytest

from paceline.analysis.tables import read_tables
from tests.made_reports import write_reports


@pytest.fixture
def made(tmp_path):
    """Typed tables of these runs: `made(runs, axes=[...])`; equal keys are made to differ."""

    def make(runs, **about):
        known = {}
        for place, run in enumerate(runs):
            known.setdefault(run["key"], place)
        runs = [
            run if known[run["key"]] == place else run | {"key": f"{run['key']}x{place}"}
            for place, run in enumerate(runs)
        ]
        return read_tables(write_reports(tmp_path / "made", runs, **about))

    return make
