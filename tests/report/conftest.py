import pytest

from paceline.analysis.analyse import analyse
from paceline.report.page import report
from tests.made_findings import as_needed
from tests.made_reports import write_reports


@pytest.fixture(scope="session")
def reported(tmp_path_factory):
    """A folder with the page of the whole made study; to be read only."""
    folder = write_reports(tmp_path_factory.mktemp("reports") / "made")
    analyse(folder)
    report(folder)
    return folder


@pytest.fixture
def reports(tmp_path):
    """The page's text of these runs: `reports(runs, axes=[...])`."""

    def write(runs, **about):
        folder = write_reports(tmp_path / "made", runs, **about)
        analyse(folder)
        return report(folder).read_text()

    return write


@pytest.fixture
def findings(tmp_path):
    """Findings of these runs: `findings(runs, axes=[...])`; see `as_needed`."""
    return lambda runs, **about: as_needed(write_reports(tmp_path / "made", runs, **about))
