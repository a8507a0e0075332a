"""Says findings, schemes and settings in words, instead of keys of the configuration.

The sentences are in templates/phrases.yaml, and the words for settings in templates/settings.yaml.
The code decides which sentence applies and with which numbers; these files decide its wording.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import pandas as pd
import yaml
from jinja2 import Environment, StrictUndefined, Template

from paceline.analysis.configuration import OPTIMIZER, is_of_scheme
from paceline.analysis.frames import Entry, Frame, Row
from paceline.report.number_format import FORMS, bit_rate, setting, size, with_interval

_NAME = re.compile(r'"""([^:(.\n]+)')


def say(name: str, numbers: Mapping[Any, Any] | None = None, /, **more: Any) -> str:
    """Return the phrase `name`, with its places filled from `numbers` and `more`.

    Raises KeyError if there is no such phrase, and jinja2.UndefinedError if a place has no value.
    """
    return phrase(read("phrases")[name]).render(dict(numbers if numbers is not None else {}) | more)


@cache
def phrase(text: str) -> Template:
    """Return a template of `text`, in which the formats of number_format are filters."""
    environment = Environment(undefined=StrictUndefined, autoescape=False)  # pages escape
    environment.filters |= FORMS | {"with_interval": with_interval}
    return environment.from_string(text)


@cache
def read(name: str) -> Mapping[str, Any]:
    """Return the contents of templates/<name>.yaml."""
    return yaml.safe_load((files("paceline.report") / f"templates/{name}.yaml").read_text())


@cache
def scheme_name(scheme: str) -> str:
    """Return the name of a scheme in words, as in "local SGD".

    It is the beginning of the docstring of the scheme's file, up to the first colon, full stop or
    parenthesis. A scheme that has no file in the package is named after its configuration file.
    """
    path = files("paceline.scheme") / f"{scheme}.py"
    found = _NAME.match(path.read_text()) if path.is_file() else None
    name = found[1].strip() if found else scheme.replace("_", " ")
    return name[:1].lower() + name[1:]


def scheme_words(row: Frame | Row) -> str:
    """Name the scheme of a row, with those settings of the scheme that have a value with a name."""
    parts, known = [scheme_name(str(row["scheme"]))], read("settings")
    for name, value in dict(row).items():
        if name.startswith("scheme.") and not pd.isna(value) and value not in (0, ""):
            if known["values"].get(name, {}).get(value) == "":
                continue
            words = known["words"].get(name, name.removeprefix("scheme."))
            parts.append(counted(name, value) or f"{words} {setting(value)}")
    optimizer: Entry = row.get(OPTIMIZER)
    if not pd.isna(optimizer):
        parts += filter(None, [value_words(OPTIMIZER, optimizer)])
    if (shards := row.get("model.shards", 1)) > 1:
        parts.append(f"{counted('workers', row['workers'])} of {shards:.0f} processes")
        if isinstance(row.get("model.split"), str):
            parts.append(row["model.split"].replace("_", " "))
    return ", ".join(parts)


def configuration_words(row: Frame | Row, names: Iterable[str]) -> str:
    """Name the scheme of a row, then the settings in `names` that do not belong to the scheme."""
    others = [name for name in names if not is_of_scheme(name)]
    return ", ".join(filter(None, [scheme_words(row), values_words(row, others)]))


def values_words(row: Frame | Row, names: Iterable[str]) -> str:
    """Say the settings `names` of a row with their values, as in "2 workers, 3 epochs"."""
    return ", ".join(filter(None, (value_words(name, row[name]) for name in names)))


def counted(name: str, number: float) -> str:
    """Say a setting that counts things, as in "2 servers"; "" for any other setting."""
    noun = read("settings")["counted"].get(name)
    return f"{number:,g} {noun}{'' if number == 1 else 's'}" if noun else ""


def heading(name: str) -> str:
    """Name a setting as the heading of a column, as in "workers"."""
    known = read("settings")
    words = known["words"].get(name, name.rpartition(".")[2].replace("_", " "))
    return f"{known['counted'][name]}s" if name in known["counted"] else words


def cell(name: str, value: Entry) -> str:
    """Say the value of a setting in the column with its `heading`."""
    named, is_missing = read("settings")["values"].get(name, {}), pd.isna(value)
    if is_missing or isinstance(value, str):
        words = "default" if is_missing else value.replace("_", " ")
        return named.get(None if is_missing else value) or words
    if name.endswith(".bandwidth"):
        return bit_rate(value)
    return size(value) if name.endswith("num_bytes") else f"{value:,g}"


def value_words(name: str, value: Entry) -> str:
    """Say a setting with its value, as in "one straggler"; "" for a value that is not named."""
    known, is_missing = read("settings"), pd.isna(value)
    words = known["words"].get(name, name.rpartition(".")[2].replace("_", " "))
    if (own := None if is_missing else value) in (values := known["values"].get(name, {})):
        return values[own]
    if is_missing:
        return f"{words}: default"
    if name.endswith(".bandwidth"):
        return f"links of {bit_rate(value)}"
    if text := counted(name, value):
        return text
    if name.endswith("num_bytes"):
        return f"gradients of {size(value)}"
    if isinstance(value, str):
        return f"{words} {value.replace('_', ' ')}"
    return f"{value:,g} {words}"
