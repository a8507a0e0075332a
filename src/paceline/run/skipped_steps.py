"""Finds in the source of a module whether its training_step returns None."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def where_none(module: object) -> str:
    """Return the file and the line of a `return` of None in the training_step of a user's module;
    "" if its source has none. A step may still return None by other functions, or by its end.
    """
    function: Any = inspect.unwrap(type(module).training_step)  # type: ignore[attr-defined]
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    except (OSError, SyntaxError, TypeError, ValueError):
        return ""
    returns = [each for each in _own(tree) if isinstance(each, ast.Return)]
    line = next((each.lineno for each in returns if _is_none(each.value)), 0)
    code = function.__code__
    return f"{Path(code.co_filename).name}, line {code.co_firstlineno + line - 1}" if line else ""


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes of a function, without those of functions inside it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _INNER):
            yield child
            yield from _own(child)


def _is_none(value: ast.expr | None) -> bool:
    if isinstance(value, ast.IfExp):
        return _is_none(value.body) or _is_none(value.orelse)
    return value is None or (isinstance(value, ast.Constant) and value.value is None)
