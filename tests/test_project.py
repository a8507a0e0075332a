"""What the project promises of itself: locked dependencies, rooms with tests, imports leftwards."""

import ast
import importlib
import re
import tomllib
from pathlib import Path

import torch

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


def test_the_lock_holds_exact_versions_and_no_addresses():
    for name, version in locked_versions().items():
        assert re.fullmatch(r"[\w-]+", name), name
        assert re.fullmatch(r"\d[\w.]*", version), f"{name}: {version}"  # no +cpu


def test_the_lock_pins_every_dependency():
    project = project_settings()["project"]
    asked = project["dependencies"] + project["optional-dependencies"]["dev"]
    names = {canonical(re.match(r"[\w.-]+", requirement)[0]) for requirement in asked}
    assert names <= locked_versions().keys()


def test_torch_and_torchvision_are_pinned_as_a_pair_that_loads():
    pair = [locked_versions()[name] for name in ("torch", "torchvision")]
    assert pair == ["2.15.0", "0.29.2"]  # renew both together
    importlib.import_module("torchvision")  # a pair that does not match has no operators
    assert torch.ops.torchvision.nms


def test_the_contract_lists_every_room():
    assert sorted(room for layer in layers() for room in layer.split(" | ")) == ROOMS


def test_a_scheme_moves_no_bytes_itself():
    """The import contract sees whole packages only, and a scheme may import torch."""
    files = (ROOT / "src/paceline/scheme").glob("*.py")
    names = {name for file in files for name in imported_names(file)}
    assert not [name for name in names if name.startswith("torch.distributed")]


def imported_names(file):
    for statement in ast.walk(ast.parse(file.read_text())):
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        if isinstance(statement, ast.ImportFrom):
            yield from (f"{statement.module}.{alias.name}" for alias in statement.names)


NAMED_ROOM = re.compile(r"\bpaceline\.(\w+)")


def test_a_string_names_no_room_to_the_right():
    """The import contract does not see `module:function`, or what Hydra is asked to build."""
    places = {
        name: place for place, layer in enumerate(reversed(layers())) for name in layer.split(" | ")
    }
    upward = {
        (file.name, name)
        for room in ROOMS
        for file in (ROOT / "src/paceline" / room).rglob("*.py")
        for name in named_rooms(file)
        if places.get(name, 0) > places[room]
    }
    assert upward == set()


def layers():
    contracts = project_settings()["tool"]["importlinter"]["contracts"]
    (found,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    return found


def named_rooms(file):
    """Rooms in strings that are no docstrings."""
    tree = ast.parse(file.read_text())
    documented = ast.Module | ast.ClassDef | ast.FunctionDef
    words = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and ast.get_docstring(node)
    }
    for node in ast.walk(tree):
        text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if text and id(node) not in words:
            yield from NAMED_ROOM.findall(node.value)


def test_each_known_fault_is_of_one_line_that_is_there():
    """Where this fails, known.yaml names a line that was changed since."""
    assert known_faults(ROOT)
