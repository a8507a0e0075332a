"""Which test files cover a file of the source, by what they import; nearest and lightest first."""

import ast
import re
from collections import deque
from functools import cache
from pathlib import Path

from benchmarks.mutants.faults import SOURCE

COMPOSES = f"{SOURCE}/study/compose.py"  # which reaches all that conf/ names
STARTS = f"{SOURCE}/cli.py"  # which finds the file of a command by its name
DOTTED = re.compile(r"(?:paceline|tests)(?:\.\w+)+")


class Selection:
    """Imports in functions and dotted names in strings, or in conf/, count as imports."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._tests = sorted((root / "tests").rglob("test_*.py"))
        self._near = {test: self._distances(test) for test in self._tests}

    def weight(self, path: str) -> int:
        """Number of files behind the first test of a file: light ones are tried first."""
        return len(self._near[self._root / self.tests_for(path, 1)[0]])

    def tests_for(self, path: str, number: int) -> list[str]:
        """At most `number` files; those of its name, folder and room as if they imported it."""
        source = self._root / path
        folder = source.parent.relative_to(self._root / SOURCE).parts

        def order(test: Path) -> tuple[int, int, str]:
            named = test.stem == f"test_{source.stem}"
            beside = test.parent.relative_to(self._root / "tests").parts
            same = 1 if beside == folder else 2 if beside == folder[:1] else 99
            near = min(self._near[test].get(source, 99), 0 if named else 99, same)
            return near, len(self._near[test]), test.as_posix()

        chosen = sorted(self._tests, key=order)
        reached = [test for test in chosen if order(test)[0] < 99]
        return [test.relative_to(self._root).as_posix() for test in reached[:number]]

    def _distances(self, test: Path) -> dict[Path, int]:
        found, line = {test: 0}, deque([test])
        while line:
            file = line.popleft()
            for other in self._imported(file):
                if other not in found:
                    found[other] = found[file] + 1
                    line.append(other)
        return found

    @cache  # noqa: B019  (one of them lives as long as the program)
    def _imported(self, file: Path) -> list[Path]:
        names = set[str]()
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                names |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
            elif isinstance(node, ast.Import):
                names |= {each.name for each in node.names}
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                names |= _dotted(node.value)
        if file == self._root / COMPOSES:
            for settings in (self._root / "conf").rglob("*.yaml"):
                names |= _dotted(settings.read_text())
        if file == self._root / STARTS:
            commands = (self._root / SOURCE / "command").glob("*_command.py")
            names |= {f"paceline.command.{each.stem}" for each in commands}
        files = [self._file(name) for name in sorted(names)]
        return [each for each in files if each is not None and each != file]

    def _file(self, name: str) -> Path | None:
        top = "src/" if name.startswith("paceline") else ""
        if not name.startswith(("paceline.", "tests.", "benchmarks.")):
            return None
        file = self._root / f"{top}{name.replace('.', '/')}.py"
        return file if file.is_file() else None


def _dotted(text: str) -> set[str]:
    found = DOTTED.findall(text)
    return {*found, *(name.rpartition(".")[0] for name in found)}
