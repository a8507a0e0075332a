"""Messages between head and agents as JSON: plain values, arrays, and objects of listed classes.

Reading a message runs no code but the constructors of these classes.
"""

import base64
import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np

_CLASSES = {  # dataclasses and named tuples, by the module of each
    "cluster.agent_wire": ("Ready", "Order", "Kill", "End", "Reported", "Ended", "Over"),
    "cluster.child": ("Returned", "Raised", "Tolerated", "Alive"),
    "cluster.supervisor": ("Task",),
    "clock.reports": ("StrategyReport", "WorkerReport", "ServerReport"),
    "scheme.audit": ("Averaged",),
    "data.order": ("SampleStream", "StreamOrder", "PartitionedOrder"),
    "data.placement": ("DataMoved",),
    "record.observed": ("TrainingReport", "SnapshotScore"),
    "record.point": ("Point",),
}
_KIND, _VALUE = "kind", "value"  # of what JSON does not have


def to_json(value: Any) -> bytes:
    """Return a value as JSON. Raises TypeError for a value of another type."""
    return json.dumps(_plain(value)).encode()


def from_json(content: bytes) -> Any:
    """Return the value that `to_json` was given. Raises ValueError for anything else."""
    try:
        return _built(json.loads(content))
    except (TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"no message: {error}") from None


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | str():
            return value
        case np.generic():
            return _plain(value.item())
        case int() | float():
            return value
        case list():
            return [_plain(each) for each in cast("list[Any]", value)]
        case bytes():
            return _tagged("bytes", base64.b64encode(value).decode())
        case Path():
            return _tagged("path", str(value))
        case frozenset():
            return _tagged("frozenset", [_plain(each) for each in cast("frozenset[Any]", value)])
        case np.ndarray():
            return _tagged("array", _plain_array(cast("np.ndarray[Any, Any]", value)))
        case Mapping():
            items = cast("Mapping[Any, Any]", value).items()
            return _tagged("dict", [[_plain(name), _plain(each)] for name, each in items])
        case _:
            return _plain_object(value)


def _plain_array(array: "np.ndarray[Any, Any]") -> list[Any]:
    if array.dtype.hasobject:
        raise TypeError("an array of objects does not travel between machines")
    return [array.dtype.str, list(array.shape), base64.b64encode(array.tobytes()).decode()]


def _plain_object(value: Any) -> Any:
    kind = cast("type[Any]", type(value))
    name = f"{kind.__module__.removeprefix('paceline.')}:{kind.__name__}"
    if name in _names():
        return _tagged(name, {each: _plain(getattr(value, each)) for each in _fields(kind)})
    if kind is tuple:
        return _tagged("tuple", [_plain(each) for each in value])
    raise TypeError(f"a {kind.__name__} does not travel between machines")


def _tagged(kind: str, value: Any) -> dict[str, Any]:
    return {_KIND: kind, _VALUE: value}


def _built(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_built(each) for each in cast("list[Any]", plain)]
    if not isinstance(plain, dict):
        return plain
    tagged = cast("dict[str, Any]", plain)
    kind, value = cast("str", tagged[_KIND]), tagged[_VALUE]
    if kind in _BUILDERS:
        return _BUILDERS[kind](value)
    if kind not in _names():
        raise ValueError(f"no message: there is no {kind!r}")
    module, name = kind.split(":")
    built: Any = getattr(importlib.import_module(f"paceline.{module}"), name)
    arguments = {each: _built(of_it) for each, of_it in value.items()}
    return getattr(built, "of_plain", built)(**arguments)


def _array(value: Any) -> "np.ndarray[Any, Any]":
    dtype, shape, content = value
    return np.frombuffer(bytearray(base64.b64decode(content)), np.dtype(dtype)).reshape(shape)


_BUILDERS: dict[str, Callable[[Any], Any]] = {
    "tuple": lambda value: tuple(map(_built, value)),
    "frozenset": lambda value: frozenset(map(_built, value)),
    "dict": lambda value: {_built(name): _built(each) for name, each in value},
    "bytes": base64.b64decode,
    "path": Path,
    "array": _array,
}


@cache
def _names() -> frozenset[str]:
    return frozenset(f"{module}:{name}" for module, names in _CLASSES.items() for name in names)


@cache
def _fields(kind: type[Any]) -> tuple[str, ...]:
    """Return the names of the constructor's arguments, or those that a class declares itself."""
    if hasattr(kind, "of_plain"):
        return kind.PLAIN
    return tuple(each.name for each in fields(kind)) if is_dataclass(kind) else kind._fields
