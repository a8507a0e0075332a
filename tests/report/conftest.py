import pytest

from paceline.report.findings import read_findings
from tests.made_reports import write_page, write_reports


@pytest.fixture(scope="session")
def reported(tmp_path_factory):
    """A folder with the page of the whole made study; to be read only."""
    folder = write_reports(tmp_path_factory.mktemp("reports") / "made")
    write_page(folder)
    return folder


@pytest.fixture
def reports(tmp_path):
    """The page's text of these runs, in its `folder`: `reports(runs, axes=[...])`."""

    def write(runs, **about):
        return write_page(write_reports(write.folder, runs, **about)).read_text()

    write.folder = tmp_path / "made"
    return write


@pytest.fixture
def findings(tmp_path):
    """Findings of these runs: `findings(runs, axes=[...])`."""
    return lambda runs, **about: read_findings(write_reports(tmp_path / "made", runs, **about))
