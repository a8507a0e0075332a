"""Every file of exchange/collective/ is a collective by its name."""

import subprocess
import sys
from pathlib import Path

import pytest

from paceline.errors import SettingError
from paceline.exchange import collective as folder
from paceline.exchange.find_collective import collective, collective_names


def test_every_file_is_a_collective():
    files = {path.stem for path in Path(folder.__file__).parent.glob("*.py")} - {"__init__"}
    assert set(collective_names()) == files
    assert files >= {"native", "ring", "tree", "multicolor", "parameter_server", "hierarchical"}


def test_a_collective_is_called_like_its_file():
    for name in collective_names():
        chosen = collective(name)
        assert type(chosen).__name__ == name.title().replace("_", "")
        assert type(chosen).__subclasses__() == []
        assert collective(name) is chosen


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
