"""Every file of exchange/collective/ is a collective by its name, and says where it is from."""

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.errors import SettingError
from paceline.exchange import collective as folder
from paceline.exchange.find_collective import collective, collective_names

# Authors and year, and where to look: "(Kumar et al. 2017, arXiv:1711.00705)"
CITED = re.compile(
    r"[A-Z]\w+ (et al\.|& [A-Z]\w+) (19|20)\d\d, (arXiv:\d{4}\.\d{5}|[A-Z][\w. ]+\d)"
)
every_collective = pytest.mark.parametrize("name", collective_names())


def cited(text):
    return CITED.search(" ".join(text.split())) is not None


def test_every_file_is_a_collective():
    files = {path.stem for path in Path(folder.__file__).parent.glob("*.py")} - {"__init__"}
    assert set(collective_names()) == files
    assert files >= {"native", "ring", "tree", "multicolor", "parameter_server", "hierarchical"}


@every_collective
def test_a_collective_is_called_like_its_file(name):
    chosen = collective(name)
    assert type(chosen).__name__ == name.title().replace("_", "")
    assert type(chosen).__subclasses__() == []
    assert collective(name) is chosen


@every_collective
def test_a_collective_and_its_formula_cite_their_source(name):
    module = importlib.import_module(type(collective(name)).__module__)
    assert cited(module.__doc__)
    assert cited(inspect.getdoc(type(collective(name)).link_seconds))


def test_a_year_alone_is_no_citation():
    assert cited("Rings (Patarasuk & Yuan 2009, J. Parallel\n    Distrib. Comput. 69).")
    assert not cited("Rings of 2009, by us.")


def test_a_collective_that_is_not_known_is_named():
    with pytest.raises(SettingError, match=r"scheme.collective: there is no star; .* ring, tree"):
        collective("star")


@pytest.mark.parametrize(
    ("content", "count"), [("", 0), ("class One(Base): pass\nclass Two(Base): pass\n", 2)]
)
def test_a_file_declares_one_collective(content, count, tmp_path, monkeypatch):
    start = "from paceline.exchange.abstract_collective import AbstractCollective as Base\n"
    (tmp_path / f"declares_{count}.py").write_text(start + content)
    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path)])
    assert f"declares_{count}" in collective_names()
    with pytest.raises(
        TypeError, match=f"declares_{count} must declare one collective, not {count}"
    ):
        collective(f"declares_{count}")


def test_costs_need_no_torch():
    code = (
        "import sys; from paceline.exchange.find_collective import collective, collective_names; "
        "[collective(name) for name in collective_names()]; print('torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
