import pytest

from paceline.analysis.tables import read_tables
from tests.made_reports import write_reports


@pytest.fixture
def made(tmp_path):
    """Typed tables of these runs: `made(runs, axes=[...])`."""
    return lambda runs, **about: read_tables(write_reports(tmp_path / "made", runs, **about))
