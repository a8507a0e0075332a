"""Reads JSON and YAML that another program may have written, as plain values.

All functions raise ValueError for what Paceline does not write itself: a name that occurs twice,
a number that is not finite or has no 64 bits, a control character or half of a surrogate pair in a
text, values that are nested deeply, and in YAML tags and aliases. Nothing is imported or built.
"""

import json
import math
import re
from functools import lru_cache
from typing import Any, cast

import yaml

_DEEPEST = 20
_LARGEST = 2**63
_UNPRINTABLE = re.compile(r"[\0-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SCALARS = {f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str")}


def read_json(text: str) -> Any:
    try:
        value = json.loads(
            text, object_pairs_hook=_once, parse_float=_finite, parse_constant=_finite
        )
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None
    _check(value)
    return value


def read_yaml(text: str) -> Any:
    """Read one document. Infinity is a number in YAML, as for a bandwidth without a limit."""
    loader = _Loader(text)
    try:
        loader.get_event()
        if not isinstance(loader.get_event(), yaml.DocumentStartEvent):
            raise ValueError("it is empty")
        value = _next_value(loader, 0)
        loader.get_event()
        if not isinstance(loader.get_event(), yaml.StreamEndEvent):
            raise ValueError("it has more than one document")
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    finally:
        loader.dispose()
    _check(value)
    return value


def _check(value: Any, depth: int = 0) -> None:
    """Raise ValueError for a text or a number that a table cannot have."""
    if depth > _DEEPEST:
        raise ValueError("its values are nested too deeply")
    if isinstance(value, dict):
        pairs = cast("dict[object, Any]", value)
        _check(list(pairs), depth)
        _check(list(pairs.values()), depth)
    elif isinstance(value, list):
        for each in cast("list[Any]", value):
            _check(each, depth + 1)
    elif isinstance(value, str) and (found := _UNPRINTABLE.search(value)):
        raise ValueError(f"the character {found[0]!a} is in a text")
    elif isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
        raise ValueError("a number has more than 64 bits")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name} occurs twice")
        found[name] = value
    return found


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is not a JSON number")
    return number


def _next_value(loader: Any, depth: int) -> Any:
    """Return the value of the next node. PyYAML's own functions call themselves without a limit,
    and take the last one of two equal names.
    """
    event = loader.get_event()
    if isinstance(event, yaml.AliasEvent) or event.tag is not None:
        raise ValueError("it has a tag or an alias, which plain settings do not have")
    if depth > _DEEPEST:
        raise ValueError("its values are nested too deeply")
    if isinstance(event, yaml.ScalarEvent):
        return _scalar(event.value, event.implicit)
    if isinstance(event, yaml.SequenceStartEvent):
        items = list[Any]()
        while not loader.check_event(yaml.SequenceEndEvent):
            items.append(_next_value(loader, depth + 1))
        loader.get_event()
        return items
    pairs = list[tuple[Any, Any]]()
    while not loader.check_event(yaml.MappingEndEvent):
        name = _next_value(loader, depth + 1)
        if isinstance(name, list | dict):
            raise ValueError("a name is not a text")
        pairs.append((name, _next_value(loader, depth + 1)))
    loader.get_event()
    return _once(pairs)


@lru_cache(2**14)
def _scalar(text: str, implicit: tuple[bool, bool]) -> Any:
    loader: Any = yaml.SafeLoader("")
    tag: Any = loader.resolve(yaml.ScalarNode, text, implicit)
    if tag not in _SCALARS:
        raise ValueError(f"{text!r} is not a plain value")
    return loader.construct_object(yaml.ScalarNode(tag, text))
