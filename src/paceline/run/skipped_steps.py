"""Finds in the source of a module whether its training_step may return None."""

import ast
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def where_none(module: object) -> str:
    """Return the file and the line at which training_step of a user's module returns None, or ends
    without a return; "" if its source does not show that it may.

    A method of the module whose result is returned is followed if nothing else calls it: one that
    validation calls, too, may return None there. A function may still return None without this one
    finding out.
    """
    kinds = [kind for kind in type(module).__mro__ if not kind.__module__.startswith(_FOREIGN)]
    return _where(kinds, "training_step", seen=frozenset())


_FOREIGN = ("builtins", "lightning.", "pytorch_lightning.", "torch.")


def _where(kinds: Sequence[type], method: str, seen: frozenset[Any]) -> str:
    owner = next((n for n, kind in enumerate(kinds) if method in vars(kind)), None)
    if owner is None:
        return ""
    function: Any = inspect.unwrap(getattr(kinds[owner], method))
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
        calls = "".join(map(inspect.getsource, kinds)).count
    except (OSError, SyntaxError, TypeError, ValueError):
        return ""
    if function in seen or not isinstance(tree, ast.FunctionDef):
        return ""
    own = list(_own(tree))
    returns = [each for each in own if isinstance(each, ast.Return)]
    line = next((each.lineno for each in returns if _is_none(each.value)), 0)
    if not line and not _ends(tree.body) and not any(isinstance(each, ast.Yield) for each in own):
        line = tree.body[-1].end_lineno or 1
    if line:
        code = function.__code__
        return f"{Path(code.co_filename).name}, line {code.co_firstlineno + line - 1}"
    for each in returns:
        inherited, name = _called(each.value, own)
        if name and (inherited or calls(f".{name}(") == 1):
            following = kinds[owner + 1 :] if inherited else kinds
            if found := _where(following, name, seen | {function}):
                return found
    return ""


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


def _ends(body: Sequence[ast.stmt]) -> bool:
    """Return True if statements end by a return or an error in any case."""
    last = body[-1] if body else None
    if isinstance(last, ast.If):
        return _ends(last.body) and _ends(last.orelse)
    if isinstance(last, ast.With):
        return _ends(last.body)
    if isinstance(last, ast.Try):
        tried = _ends(last.orelse or last.body) and all(_ends(each.body) for each in last.handlers)
        return tried or _ends(last.finalbody)
    if isinstance(last, ast.Match):
        return all(_ends(case.body) for case in last.cases)
    return isinstance(last, ast.Return | ast.Raise | ast.While)


def _called(value: ast.expr | None, own: Sequence[ast.AST]) -> tuple[bool, str]:
    """Return whether a returned value is the result of an inherited method, and the name of the
    method; "" if it is the result of no method of the module.
    """
    if isinstance(value, ast.Name):
        name = value.id
        given = [
            each.value
            for each in own
            if isinstance(each, ast.Assign)
            and any(isinstance(to, ast.Name) and to.id == name for to in each.targets)
        ]
        tests = [each.left for each in own if isinstance(each, ast.Compare)]
        asked = any(isinstance(each, ast.Name) and each.id == name for each in tests)
        value = given[0] if len(given) == 1 and not asked else None
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return False, ""
    holder = ast.unparse(value.func.value)
    inherited = holder.startswith("super(")
    return inherited, value.func.attr if inherited or holder == "self" else ""
