"""Key of a point (one training run): a digest of the settings that decide what it computes."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from types import UnionType
from typing import Annotated, Any, TypedDict, Union, cast, get_args, get_origin, get_type_hints

from paceline.data.placement import Placement
from paceline.model.network_size import Sharding
from paceline.record.measurement import Measurement
from paceline.record.target import GROUPS, MOVED, Target, own_classes
from paceline.settings import Neutral, Unkeyed

# Settings at the top level that are not part of the key of a point. They do not change what it
# computes, or only by other settings, which the key includes: a trial, and global_batch_size.
_OF_STUDY = (
    *("study", "question", "names", "experiments", "grids", "tuning", "trial", "predicted_by"),
    *("validated_on", "margin", "target", "sweep", "global_batch_size"),
)


class PointSettings(TypedDict):
    """Settings at the top level that decide what a point computes.

    For a group of settings such as `scheme`, the annotations in the group's class mark the settings
    that are not part of a key: Unkeyed ones, and Neutral ones that have their neutral value. The
    annotation Target stands for the class that the group's `_target_` names.
    """

    workers: int
    batch_size: int
    seed: int
    save_weights: bool
    model: Sharding  # importing the class of the network takes seconds: all settings count
    data: Placement | Target
    scheme: Target
    cluster: Target
    workload: Annotated[
        Target, Neutral({"_target_": "paceline.timing.workload.OwnNetwork", "name": "own"})
    ]
    training: Target
    measurement: Measurement


# Settings that are gone, with the value that has the effect of today's code. Records name them.
RETIRED: Mapping[str, Any] = {
    "exchange": None,
    "blocks": None,
    "repeat": 0,
    "data.feed": "own",
    "data.copies": 1,
    "scheme.overlap": False,
}
_RETIRED_UNKEYED = ("patience_seconds",)  # of cluster, with any value

# Studies wrote these bandwidths [bytes/s] as whole numbers, and all others with a decimal point.
_WHOLE_BANDWIDTHS = (33_333_333, 100_000_000, 333_333_333, 1_250_000_000)


def key_of(values: Mapping[str, Any]) -> str:
    """Return the digest of a point's settings: 12 hexadecimal digits.

    Equal numbers have equal digests, however they are written: 1 and 1.0, or 0 and -0.0.
    """
    plain = _in_one_form(json.loads(json.dumps(deciding(without_retired(values)))))
    content = _without(plain, PointSettings, lambda m, v: isinstance(m, Neutral) and m.value == v)
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def deciding(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that decide what a point computes.

    Settings of _OF_STUDY, and settings that are marked as UNKEYED, are left out.
    """
    own = {name: value for name, value in values.items() if name not in _OF_STUDY}
    return _without(own, PointSettings, lambda mark, _: isinstance(mark, Unkeyed))


def without_retired(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings without those of RETIRED that have the value named there."""
    kept: dict[str, Any] = dict(values)
    if isinstance(cluster := kept.get("cluster"), dict):
        of_cluster = cast("dict[str, Any]", cluster).items()
        kept["cluster"] = {name: v for name, v in of_cluster if name not in _RETIRED_UNKEYED}
    for setting, value in RETIRED.items():
        group, _, name = setting.rpartition(".")
        found: Any = kept.get(group) if group else kept
        of_group = cast("dict[str, Any]", found if isinstance(found, dict) else {})
        if name in of_group and of_group[name] == value:
            rest = {inner: v for inner, v in of_group.items() if inner != name}
            kept = {**kept, group: rest} if group else rest
    return kept


def _in_one_form(value: Any, setting: str = "") -> Any:
    """Return settings in which equal numbers are equal texts.

    Whole numbers have no decimal point. Bandwidths have one, except those of _WHOLE_BANDWIDTHS; an
    infinite bandwidth is None. `setting`: name of the innermost setting that has the value.
    """
    if isinstance(value, dict):
        inner = cast("dict[str, Any]", value)
        return {n: _in_one_form(v, setting if n.isdigit() else n) for n, v in inner.items()}
    if isinstance(value, list):
        return [_in_one_form(each, setting) for each in cast("list[Any]", value)]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if setting.endswith("bandwidth"):
        if value in _WHOLE_BANDWIDTHS:
            return int(value)
        return None if value == math.inf else float(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


@cache
def declared_settings(kind: type) -> dict[str, Any]:
    """Return the annotation of each setting that a class declares, by the setting's name."""
    return get_type_hints(kind, include_extras=True)


def neutral_values(kind: type) -> dict[str, Any]:
    """Return the neutral values of those settings of a class that are marked as Neutral."""
    declared = declared_settings(kind).items()
    marks = ((name, mark) for name, hint in declared for mark in _marks(hint))
    return {name: mark.value for name, mark in marks if isinstance(mark, Neutral)}


def _without(
    values: Mapping[str, Any], hint: Any, is_left_out: Callable[[Any, Any], bool]
) -> dict[str, Any]:
    """Return the settings without those for which `is_left_out(mark, value)` is True.

    `hint`: annotation of the group that consists of these settings. Inner groups are treated in the
    same way.
    """
    declared = _declared(hint, values.get("_target_"))
    kept: dict[str, Any] = {}
    for name, value in values.items():
        inner = declared.get(name)
        if any(is_left_out(mark, value) for mark in _marks(inner)):
            continue
        if isinstance(value, Mapping):
            value = _without(cast("Mapping[str, Any]", value), inner, is_left_out)
        kept[name] = value
    return kept


def _marks(hint: Any) -> tuple[Any, ...]:
    return getattr(hint, "__metadata__", ())


def _declared(hint: Any, target: object) -> dict[str, Any]:
    """Return the annotations of the settings of a group, by the annotation of the group.

    `target`: what the group's `_target_` names. Records name targets as well, so only classes of
    Paceline's own files are imported.
    """
    if get_origin(hint) in (Annotated, Union, UnionType):
        parts = get_args(hint)[:1] if get_origin(hint) is Annotated else get_args(hint)
        return {name: each for part in parts for name, each in _declared(part, target).items()}
    if hint is Target:
        is_own = any(target in own_classes(group) for group in GROUPS)
        module, _, name = MOVED.get(str(target), str(target)).rpartition(".")
        hint = getattr(import_module(module), name, None) if is_own else None
    return declared_settings(hint) if isinstance(hint, type) else {}
