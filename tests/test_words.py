"""Docstrings are sentences that a stranger understands without the name above them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "paceline"

# Words that continue the name of a function instead of beginning a sentence.
PREPOSITIONS = """
    about above across after against along alongside among around as at before behind below beneath
    beside besides between beyond by despite down during except for from in inside instead into like
    near of off on onto out outside over past per since than through throughout till to toward under
    until up upon via with within without
"""
RELATIVES = """
    how however that what whatever when whenever where wherever whether which whichever while who
    whoever whom whose why
"""
CONNECTIVES = """
    also although and because but else even if just lest never nor not only or rather so still then
    therefore though thus too unless yet
"""
FRAGMENTS = frozenset(f"{PREPOSITIONS} {RELATIVES} {CONNECTIVES}".split())


def source_files() -> list[str]:
    """Return all Python files, relative to src/paceline."""
    return sorted(str(file.relative_to(SOURCE)) for file in SOURCE.rglob("*.py"))


def docstrings(code: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the docstring of the module and of its classes and functions."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring is not None:
                yield getattr(node, "name", "module"), docstring


def opens_a_sentence(docstring: str) -> bool:
    """Return True if the first word is capitalised and can begin a sentence."""
    opening = re.match(r"[A-Z0-9][\w'-]*", docstring)
    return opening is not None and opening[0].lower() not in FRAGMENTS


def test_docstrings_open_with_a_verb_or_a_noun():
    bad = [
        f"{file}: {name}: {docstring.splitlines()[0]}"
        for file in source_files()
        for name, docstring in docstrings((SOURCE / file).read_text())
        if not opens_a_sentence(docstring)
    ]
    assert bad == []


@pytest.mark.parametrize(
    "docstring",
    [
        "Of each scheme the points of the first seed.",
        "Whether the study has runs on both clocks.",
        "`steps`: by batch size, seconds of each step.",
        "(latency, seconds per byte) of one direction.",
        "uint8 [N, C, H, W].",
        "",
    ],
)
def test_a_fragment_is_no_sentence(docstring):
    assert not opens_a_sentence(docstring)


@pytest.mark.parametrize(
    "docstring", ["Return the capital.", "CIFAR-10 or CIFAR-100.", "A row of hollow markers."]
)
def test_a_sentence_is_one(docstring):
    assert opens_a_sentence(docstring)
