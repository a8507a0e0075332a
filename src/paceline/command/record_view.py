"""View of one record in the terminal: its settings, its result, and a command to repeat the run."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from rich.console import RenderableType

from paceline.command.terminal import plain_table
from paceline.errors import SettingError, did_you_mean
from paceline.record.key import deciding
from paceline.record.mlflow import flat_params
from paceline.record.point_config import PointConfig
from paceline.record.reading import chosen_attempt, read_config, require_fit
from paceline.record.record import records_in
from paceline.record.result import NUMBERS
from paceline.report.number_format import form_of
from paceline.study.compose import composed
from paceline.study.study_points import studies

_KEY = re.compile(r"[0-9a-f]{2,12}")


def find_record(study: str, key: str, root: Path) -> Path:
    """Return the folder of the record whose key begins with `key`.

    `study`: name of the record's study, or `*` for any study. Raises SettingError if there is no
    such record, or more than one.
    """
    runs = root / "runs"
    known = [*studies(root), *(path.name for path in runs.glob("[!.]*"))]
    if study != "*" and study not in known:
        raise SettingError("study", f"there is no {study}{did_you_mean(study, known)}")
    folders = sorted(runs.glob(study)) if _KEY.fullmatch(key) else ()
    records = (record for folder in folders for record in records_in(folder))
    found = [record for record in records if record.name.startswith(key)]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(f"{path.parent.name} {path.name}" for path in found[:6])
        raise SettingError("key", f"{key} begins more than one; name its study too: {names}")
    if study == "*":
        raise SettingError("study", f"there is no study or record {key}{did_you_mean(key, known)}")
    keys = [path.name for path in (runs / study).glob("[!.]*")]
    raise SettingError("key", f"{study} has no record {key}{did_you_mean(key, keys)}")


def record_view(folder: Path, root: Path) -> Iterator[RenderableType]:
    """Yield the content of a record, and a command that repeats its run with conf/ of today.

    Raises SettingError("key") for an invalid record.
    """
    result = require_fit(folder)
    config = read_config(folder)
    yield str(chosen_attempt(folder).relative_to(root))
    changes = different(config, root)
    yield plain_table(["setting", "value"], changes.items())
    ending = f"{result['status']}: {result['reason']}" if result["reason"] else result["status"]
    commit = f"commit {result['commit']}" if result["commit"] else "no commit"
    yield f"{ending}; {result['kind']}, begun {result['started']}, {commit}"
    numbers = ((number, result.get(number.name)) for number in NUMBERS)
    rows = [
        [number.name, f"{value:,}" if isinstance(value, int) else form_of(number.unit)(value)]
        for number, value in numbers
        if isinstance(value, int | float)
    ]
    yield plain_table(["number", ">value"], rows)
    words = [_word(name, value) for name, value in changes.items()]
    command = " ".join(["paceline train study=again", *map(shlex.quote, words)])
    try:
        is_same = composed(words, root).key == config.key
    except SettingError:  # for a file or a setting that is no longer there
        is_same = False
    yield f"repeat: {command}" if is_same else "not to be repeated: conf/ has other settings today"


def different(config: PointConfig, root: Path) -> dict[str, str]:
    """Return the settings of a point that differ from the default settings of today.

    First come the groups for which another file of conf/ is chosen, then the settings with other
    values than in these files.
    """
    usual = composed([], root).names
    chosen = {group: name for group, name in config.names.items() if usual.get(group) != name}
    try:
        start = composed([f"{group}={name}" for group, name in chosen.items()], root)
    except SettingError:  # a file that is no longer there
        start = composed([], root)
    now, own = flat_params(start.values), flat_params(deciding(config.values))
    return chosen | {name: value for name, value in own.items() if now.get(name) != value}


def _word(name: str, value: str) -> str:
    """Return a setting as on the command line; `++`, which also adds one that is in no file."""
    try:
        json.loads(value)
    except ValueError:
        value = value if re.fullmatch(r"[\w./-]+", value) else json.dumps(value)
    return f"{'++' * ('.' in name)}{name}={value}"
