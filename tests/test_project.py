"""What the project promises of itself: locked dependencies, and imports in one direction."""

import importlib
import re
import tomllib
from pathlib import Path

import torch
import yaml

from benchmarks.mutants.drawn import known_faults

ROOT = Path(__file__).parent.parent
ROOMS = sorted(
    path.parent.name
    for path in (ROOT / "src/paceline").glob("*/__init__.py")
    if path.parent.name != "conf"  # a link to the settings, no code
)


def project_settings():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def locked_versions():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    return {canonical(name): version for name, version in pins.items()}


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_lock_pins_every_dependency_to_an_exact_version():
    for name, version in locked_versions().items():
        assert re.fullmatch(r"\d[\w.]*", version), f"{name}: {version}"  # no +cpu, no address
    project = project_settings()["project"]
    asked = project["dependencies"] + project["optional-dependencies"]["dev"]
    names = {canonical(re.match(r"[\w.-]+", requirement)[0]) for requirement in asked}
    assert names <= locked_versions().keys()


def test_the_version_is_one_in_all_files():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    changed = re.search(r"^## (\S+) - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert changed.groups() == (cited["version"], str(cited["date-released"]))
    assert cited["version"] == project_settings()["project"]["version"]


def test_torch_and_torchvision_are_pinned_as_a_pair_that_loads():
    pair = [locked_versions()[name] for name in ("torch", "torchvision")]
    assert pair == ["2.15.0", "0.29.2"]  # renew both together
    importlib.import_module("torchvision")  # a pair that does not match has no operators
    assert torch.ops.torchvision.nms


def test_the_contract_lists_every_room():
    contracts = project_settings()["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    assert sorted(room for layer in layers for room in layer.split(" | ")) == ROOMS


def test_each_known_fault_is_of_one_line_that_is_there():
    """Where this fails, known.yaml names a line that was changed since."""
    assert known_faults(ROOT)
