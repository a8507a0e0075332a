"""One-line faults that could be made in a file: operators, constants, arguments, early returns.

Not made, since no test could tell or nobody would ask: in decorators, annotations and messages (of
exceptions, in f-strings), whether zip is strict, and constants of charts (their look).
"""

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = "src/paceline"
RULES = ("operator", "constant", "argument", "return")
LOOK = f"{SOURCE}/report/chart/"
TEMPLATE = f"{SOURCE}/command/project/"  # is not run here
SWAPPED = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
TWINS = {"min": "max", "max": "min", "any": "all", "all": "any"}


class Fault(NamedTuple):
    """A line of a file, and what would stand there; `line` counts from 1."""

    key: str
    path: str  # from the repository's root
    line: int
    rule: str
    before: str
    after: str

    @property
    def room(self) -> str:
        first = self.path.removeprefix(f"{SOURCE}/").split("/")[0]
        return "paceline" if first.endswith(".py") else first

    def text(self, source: str) -> str:
        lines = source.splitlines(keepends=True)
        assert lines[self.line - 1].rstrip("\n") == self.before, self
        lines[self.line - 1] = f"{self.after}\n"
        return "".join(lines)


def faults_of(root: Path, path: str) -> list[Fault]:
    """In the order of lines; a key is of path and texts, so that it outlives changes elsewhere."""
    lines = (root / path).read_text().splitlines()
    seen, found = Counter[tuple[str, str]](), []
    for rule, number, after in _changes(ast.parse("\n".join(lines)), lines):
        if rule == "constant" and path.startswith(LOOK):
            continue
        before = lines[number - 1]
        texts = before.strip(), after.strip()
        words = (path, *texts, str(seen[texts]))
        seen[texts] += 1
        key = hashlib.sha256("\0".join(words).encode()).hexdigest()[:10]
        found.append(Fault(key, path, number, rule, before, after))
    return found


def _changes(tree: ast.Module, lines: list[str]) -> Iterator[tuple[str, int, str]]:
    """Rule, line, and the line's new text."""
    for node in _judged(tree):
        if isinstance(node, ast.FunctionDef):
            yield from _does_nothing(node, lines)
        for rule, place, text in _replacements(node):
            if place.lineno == place.end_lineno and place.end_col_offset is not None:
                line = lines[place.lineno - 1].encode()
                new = line[: place.col_offset] + text.encode() + line[place.end_col_offset :]
                if new != line:
                    yield rule, place.lineno, new.decode()


def _judged(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those of which no fault is made."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("decorator_list", "annotation", "returns", "type_comment"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_left_out(child):
                yield from _judged(child)


def _is_left_out(node: ast.AST) -> bool:
    """f-strings also because Python 3.11 does not say where their parts are."""
    return isinstance(node, ast.Raise | ast.JoinedStr) or (
        isinstance(node, ast.keyword) and node.arg == "strict"
    )


def _does_nothing(node: ast.FunctionDef, lines: list[str]) -> Iterator[tuple[str, int, str]]:
    """A function without a result that returns at once."""
    gives = node.returns is not None and ast.unparse(node.returns) != "None"
    body = node.body[1:] if ast.get_docstring(node) else node.body
    if gives or not body or isinstance(body[0], ast.Pass | ast.Raise | ast.Return):
        return
    line = lines[body[0].lineno - 1]
    if body[0].lineno > node.lineno:
        yield "return", body[0].lineno, " " * body[0].col_offset + f"return\n{line}"


def _replacements(node: ast.AST) -> Iterator[tuple[str, ast.expr, str]]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield "operator", node, _with(node, ops=[SWAPPED[type(node.ops[0])]()])
    elif isinstance(node, ast.BinOp) and type(node.op) in SWAPPED and not _is_text(node):
        yield "operator", node, _with(node, op=SWAPPED[type(node.op)]())
    elif isinstance(node, ast.BoolOp):
        yield "operator", node, f"({_with(node, op=SWAPPED[type(node.op)]())})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "operator", node, f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.If | ast.IfExp) and isinstance(node.test, ast.Name | ast.Attribute):
        yield "operator", node.test, f"(not {ast.unparse(node.test)})"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        yield "constant", node, _other(node.value)
    elif isinstance(node, ast.Call):
        yield from _calls(node)


def _calls(node: ast.Call) -> Iterator[tuple[str, ast.expr, str]]:
    if isinstance(node.func, ast.Name) and node.func.id in TWINS:
        yield "operator", node.func, TWINS[node.func.id]
    plain = not any(isinstance(each, ast.Starred) for each in node.args[:2])
    if len(node.args) >= 2 and plain and not _is_even(node):
        first, second, *rest = node.args
        if ast.dump(first) != ast.dump(second):
            yield "argument", node, _with(node, args=[second, first, *rest])
    for keyword in node.keywords:
        if keyword.arg not in (None, "strict"):
            others = [each for each in node.keywords if each is not keyword]
            yield "argument", node, _with(node, keywords=others)


def _is_even(node: ast.Call) -> bool:
    """Whether the order of arguments says nothing, or only to a type checker."""
    return isinstance(node.func, ast.Name) and node.func.id in ("min", "max", "cast", "isinstance")


def _is_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(isinstance(s, ast.JoinedStr) for s in sides) or any(
        isinstance(s, ast.Constant) and isinstance(s.value, str) for s in sides
    )


def _with(node: ast.expr, **changes: object) -> str:
    fields = {name: getattr(node, name) for name in node._fields}
    return ast.unparse(type(node)(**{**fields, **changes}))


def _other(value: float) -> str:
    if isinstance(value, bool):
        return str(not value)
    return repr(value + 1) if isinstance(value, int) or value == 0 else repr(value * 2)
