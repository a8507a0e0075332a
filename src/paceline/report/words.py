"""Says findings, schemes and settings in words, not in configuration keys.

The sentences are in templates/phrases.yaml, the words for settings in templates/settings.yaml. Code
decides which sentence holds and with which numbers; these files decide how it is said.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import pandas as pd
import yaml
from jinja2 import Environment, StrictUndefined, Template

from paceline.analysis.frames import Entry, Frame, Row
from paceline.report.number_format import FORMS, bit_rate, plural, setting, size, with_interval

_NAME = re.compile(r'"""([^:(.\n]+)')


def say(name: str, numbers: Mapping[Any, Any] | None = None, /, **more: Any) -> str:
    """Return the phrase `name`, with its places filled from `numbers` and `more`.

    Raises KeyError without such a phrase, and jinja2.UndefinedError without one of its numbers.
    """
    return phrase(read("phrases")[name]).render(dict(numbers if numbers is not None else {}) | more)


@cache
def phrase(text: str) -> Template:
    """Return a text with places to fill, in which formats of numbers are filters."""
    environment = Environment(undefined=StrictUndefined, autoescape=False)  # pages escape
    environment.filters |= FORMS | {"with_interval": with_interval}
    return environment.from_string(text)


@cache
def read(name: str) -> Mapping[str, Any]:
    """Return what templates/<name>.yaml contains."""
    return yaml.safe_load((files("paceline.report") / f"templates/{name}.yaml").read_text())


@cache
def scheme_name(scheme: str) -> str:
    """Return the name of a scheme in words, as in "local SGD".

    The scheme's file begins with it, up to the first colon, full stop or parenthesis. A scheme from
    elsewhere is called like its configuration file.
    """
    path = files("paceline.scheme") / f"{scheme}.py"
    found = _NAME.match(path.read_text()) if path.is_file() else None
    name = found[1].strip() if found else scheme.replace("_", " ")
    return name[:1].lower() + name[1:]


def scheme_words(row: Frame | Row) -> str:
    """Name the scheme of a row, with those of its settings that the study sets."""
    parts = [scheme_name(str(row["scheme"]))]
    for name, value in dict(row).items():
        if name.startswith("scheme.") and not pd.isna(value) and value != 0:
            words = read("settings")["words"].get(name, name.removeprefix("scheme."))
            parts.append(counted(name, value) or f"{words} {setting(value)}")
    if (shards := row.get("model.shards", 1)) > 1:
        parts.append(f"{counted('workers', row['workers'])} of {shards:.0f} processes")
        if isinstance(row.get("model.split"), str):
            parts.append(row["model.split"].replace("_", " "))
    return ", ".join(parts)


def configuration_words(row: Frame | Row, names: Iterable[str]) -> str:
    """Name the scheme of a row, then those settings in `names` that are not the scheme's."""
    others = [name for name in names if name != "scheme" and not name.startswith("scheme.")]
    return ", ".join([scheme_words(row), *(value_words(name, row[name]) for name in others)])


def counted(name: str, number: float) -> str:
    """Say a setting that is a number of things, as in "2 servers"; "" for another setting."""
    noun = read("settings")["counted"].get(name)
    return plural(int(number), noun) if noun else ""


def value_words(name: str, value: Entry) -> str:
    """Say a setting with its value, as in "one slow worker"."""
    known = read("settings")
    words = known["words"].get(name, name)
    if name == "workers":
        return counted(name, value)
    if value in (values := known["values"].get(name, {})):
        return values[value]
    if name.endswith(".bandwidth"):
        return "links without a limit" if pd.isna(value) else f"links of {bit_rate(value)}"
    if pd.isna(value):
        return f"{words}: default"
    if name.endswith("num_bytes"):
        return f"gradients of {size(value)}"
    if isinstance(value, str):
        return f"{words} {value.replace('_', ' ')}"
    return f"{value:,g} {words}"
