"""Schema of records and of the tables that are collected from them.

The valid range of a number follows from the unit that `numbers.py` declares. Records made by an
earlier version of the code may lack numbers, tables, columns and cells.
"""

import csv
import json
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from types import GenericAlias
from typing import Annotated, Any, Literal, get_args, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    create_model,
)

from paceline.record.numbers import NUMBERS
from paceline.record.rows import POINT_TABLES, PointTable, StudyState, bits_of

Result = Mapping[str, Any]  # content of result.json
_Finite = Annotated[float, Field(allow_inf_nan=False)]
_NotNegative = Annotated[float, Field(ge=0, le=2**63)]
_Rate = Annotated[float, Field(ge=1e-9, le=1e15)]  # of images per second, of any cluster
_Seconds = Annotated[float, Field(ge=0, le=1e12)]
_Share = Annotated[float, Field(ge=0, le=1)]
_Count = Annotated[int, Field(ge=0)]
_Whole = Annotated[int, Field(ge=1)]
_Key = Annotated[str, Field(pattern="^[0-9a-f]{12}$")]
_Name = Annotated[str, Field(pattern=r"^[\w./-]{1,99}$")]  # of a file of conf/
_RANGES: dict[str, Any] = {
    "nats": _Finite,
    "share": _Share,
    "images/s": _Rate,
    "s": _Seconds,
    "text": str | list[dict[str, Any]],
}
_UNIT = {number.name: number.unit for number in NUMBERS}
_NEEDED = ("samples", "seconds")  # numbers that every finished training has
_NEEDED_TABLES = ("curve", "staleness", "phases")  # of every training that did not fail


class _Hardware(BaseModel):
    cpu: str | None = None
    cores: _Whole | None = None
    memory_bytes: _Count | None = None
    gpus: list[str] | None = None


class _Training(BaseModel):
    model_config = ConfigDict(extra="allow")

    status: Literal["finished", "diverged", "untrained", "failed"]
    reason: str
    kind: Literal["measured", "paced", "virtual"]
    key: _Key
    started: Annotated[str, AfterValidator(datetime.fromisoformat)]
    hardware: _Hardware
    versions: dict[Annotated[str, Field(pattern=r"^[\w.-]+$")], str]
    commit: str
    source_digest: str
    study: str
    data: _Name
    model: _Name
    scheme: _Name
    cluster: _Name
    workers: _Whole
    servers: _Count
    batch_size: _Whole
    seed: _Count
    wall_seconds: _Finite  # negative in records of earlier code, if the clock was set back
    launch_seconds: _Finite | None = None
    jobs: _Whole | None = None
    accelerator: str | None = None
    server_device: str | None = None  # on GPUs only
    workers_per_accelerator: _Whole | None = None  # on GPUs only
    retimed_from: _Key | None = None
    fault_samples: _NotNegative | None = None
    fault_seconds: _Finite | None = None
    environment: bool | None = None  # True if the machine or the network made it fail


class _Target(BaseModel):
    metric: Literal["top1", "top5", "loss"]
    value: _NotNegative | None = None
    below_baseline: _NotNegative | None = None


def fault_of_result(result: Mapping[str, Any]) -> str | None:
    """Return why a parsed `result.json` is invalid, or None."""
    try:
        _training().model_validate(dict(result), strict=True)
    except ValidationError as error:
        return _first(error)
    if result["status"] == "finished":
        for name in _NEEDED:
            if result.get(name) is None:
                return f"{name}: a finished record needs it"
    return None


def fault_of_tables(texts: Mapping[str, str], status: str) -> str | None:
    """Return why the tables of a training are invalid, or None.

    `texts`: content of the record's CSV files, by the name of the table.
    """
    for table in POINT_TABLES:
        fault = None
        if table.name in texts:
            fault = _fault_of_table(table, texts[table.name])
        elif table.name in _NEEDED_TABLES and status != "failed":
            fault = "there is no such file"
        if fault:
            return f"{table.name}.csv: {fault}"
    return None


def _fault_of_table(table: PointTable, text: str) -> str | None:
    if not text.endswith("\n") or "\0" in text:
        return "it is empty, cut off or no plain text"
    try:
        header, *rows = csv.reader(text.split("\n")[:-1], strict=True)
    except csv.Error as error:
        return str(error)
    if len({*header}) < len(header) or not {*header} <= {*table.columns}:
        return f"columns {', '.join(header)}, not {', '.join(table.columns)}"
    for number, row in enumerate(rows, 1):
        if len(row) != len(header):
            return f"row {number} has {len(row)} cells, not {len(header)}"
    cells = {name: [row[n] or None for row in rows] for n, name in enumerate(header)}
    for name, column in cells.items():
        try:
            _columns(table.row)[name].validate_python(column)
        except ValidationError as error:
            place, _, problem = _first(error).partition(": ")
            return f"row {int(place) + 1}, {name}: {problem}"
    try:
        for images, right in zip(cells.get("images", ()), cells.get("right", ()), strict=False):
            bits_of(right or "", int(images or 0))
    except ValueError as error:
        return f"right: {error}"
    return None


@cache
def _columns(row: type[Any]) -> Mapping[str, TypeAdapter[Any]]:
    """Return the types of a table's columns; a record of earlier code may lack any cell."""
    hints = get_type_hints(row)
    return {
        n: TypeAdapter(GenericAlias(list, (_cell(n, hint) | None,))) for n, hint in hints.items()
    }


def number_columns(row: type[Any]) -> frozenset[str]:
    """Return the columns of numbers of a table with such rows."""
    hints = get_type_hints(row).items()
    return frozenset(name for name, hint in hints if {int, float} & {hint, *get_args(hint)})


def numbers_of_runs() -> frozenset[str]:
    """Return the columns of numbers of runs.csv, whose columns are fields of results."""
    return number_columns(_Training) | {each.name for each in NUMBERS if each.unit != "text"}


def state_of(text: bytes) -> Any:
    """Return the content of a study.json.

    Raises ValueError, with the problem in one line, if it does not follow the schema.
    """
    try:
        _study_state().model_validate_json(text, strict=True)
    except ValidationError as error:
        raise ValueError(_first(error)) from error
    return json.loads(text)


@cache
def _study_state() -> type[BaseModel]:
    ranges = {"num_points": _Count, "margin": _NotNegative}
    hints = get_type_hints(StudyState) | ranges | {"target": _Target | None}
    fields: dict[str, Any] = {name: (kind, ...) for name, kind in hints.items()}
    return create_model("_StudyState", __config__=ConfigDict(allow_inf_nan=False), **fields)


def _numbers() -> dict[str, Any]:
    return {number.name: _RANGES.get(number.unit, _NotNegative) | None for number in NUMBERS}


@cache
def _training() -> type[BaseModel]:
    numbers: dict[str, Any] = {name: (kind, None) for name, kind in _numbers().items()}
    return create_model("_TrainingWithNumbers", __base__=_Training, **numbers)


def _cell(column: str, hint: Any) -> Any:
    """Return the type of a cell; a number's range follows from its unit."""
    if hint is int:
        return _Count
    if hint is str:
        return Annotated[str, Field(min_length=1)]
    number: Any = _RANGES.get(_UNIT.get(column, ""), _NotNegative)
    return number if hint is float else number | None


def _first(error: ValidationError) -> str:
    """Return pydantic's first error as one line: the field, the problem and the value."""
    first = error.errors(include_url=False)[0]
    message = first["msg"].removeprefix("Input ").removeprefix("Value error, ")
    where = f"{first['loc'][0]}: " if first["loc"] else ""
    if first["type"] == "missing":
        return f"{where}a value is needed"
    return f"{where}{message}, not {first['input']!r:.40}"
