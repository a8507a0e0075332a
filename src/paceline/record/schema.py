"""Schema of a record: the fields of `result.json`, and the columns of each table.

The valid range of a number follows from the unit that `numbers.py` declares. Records made by an
earlier version of the code may lack numbers, tables and columns. All values that a record has are
checked.
"""

import csv
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from types import GenericAlias
from typing import Annotated, Any, Literal, get_type_hints

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
from paceline.record.rows import POINT_TABLES, PointTable, bits_of

_Finite = Annotated[float, Field(allow_inf_nan=False)]
_NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Share = Annotated[float, Field(ge=0, le=1)]
_Count = Annotated[int, Field(ge=0)]
_Whole = Annotated[int, Field(ge=1)]
_Key = Annotated[str, Field(pattern="^[0-9a-f]{12}$")]
_RANGES: dict[str, Any] = {"nats": _Finite, "share": _Share, "text": str | list[Any]}
_NOISE = {"float", "int", "str", "constrained-float", "list[any]", "function-after"}  # of pydantic
_UNIT = {number.name: number.unit for number in NUMBERS}
_NEEDED = ("samples", "seconds", "top1")  # numbers that every finished training has
_NEEDED_TABLES = ("curve", "staleness", "phases")  # of every training that did not fail
_WITH_ROWS = ("curve", "phases")  # of every finished training


class _AnyRecord(BaseModel):
    model_config = ConfigDict(extra="allow")

    status: Literal["finished", "diverged", "failed"]
    reason: str
    kind: Literal["measured", "paced", "virtual"]
    key: _Key
    started: Annotated[str, AfterValidator(datetime.fromisoformat)]
    hardware: dict[str, Any]
    versions: dict[str, str]
    commit: str
    source_digest: str


class _Training(_AnyRecord):
    study: str
    data: str
    model: str
    scheme: str
    cluster: str
    workers: _Whole
    servers: _Count
    batch_size: _Whole
    seed: _Count
    wall_seconds: _Finite  # negative if the machine's clock was set back
    launch_seconds: _Finite | None = None
    jobs: _Whole | None = None
    accelerator: str | None = None
    retimed_from: _Key | None = None
    fault_samples: _NotNegative | None = None
    fault_seconds: _Finite | None = None
    environment: bool | None = None  # True if the machine or the network made it fail


class _Exchange(_AnyRecord):
    seconds: list[_NotNegative]
    sent: _NotNegative | None
    received: _NotNegative | None
    formula: _NotNegative | None


def fault_of_result(result: Mapping[str, Any], *, exchange: bool) -> str | None:
    """Return why a parsed `result.json` is invalid, or None.

    `exchange`: True for the record of an exchange, False for that of a training.
    """
    try:
        (_Exchange if exchange else _training()).model_validate(dict(result), strict=True)
    except ValidationError as error:
        return _first(error)
    if not exchange and result["status"] == "finished":
        for name in _NEEDED:
            if result.get(name) is None:
                return f"{name}: a finished record needs it"
    return None


def fault_of_tables(texts: Mapping[str, str], status: str) -> str | None:
    """Return why the tables of a training are invalid, or None.

    `texts`: content of the record's CSV files, by the name of the table.
    """
    for table in POINT_TABLES:
        file = f"{table.name}.csv"
        if table.name not in texts:
            if table.name in _NEEDED_TABLES and status != "failed":
                return f"{file}: there is no such file"
            continue
        fault, num_rows = _fault_of_table(table, texts[table.name])
        if fault is None and not num_rows and table.name in _WITH_ROWS and status == "finished":
            fault = "a finished record needs rows"
        if fault:
            return f"{file}: {fault}"
    return None


def _fault_of_table(table: PointTable, text: str) -> tuple[str | None, int]:
    """Return why a table is invalid, or None, and the number of its rows."""
    if not text.endswith("\n"):
        return "it is empty or cut off", 0
    try:
        header, *rows = list(csv.reader(text.splitlines(), strict=True))
    except csv.Error as error:
        return str(error), 0
    if len(set(header)) < len(header) or not set(header) <= set(table.columns):
        return f"columns {', '.join(header)}, not {', '.join(table.columns)}", 0
    for number, row in enumerate(rows, 1):
        if len(row) != len(header):
            return f"row {number} has {len(row)} cells, not {len(header)}", 0
    cells = [dict(zip(header, (cell or None for cell in row), strict=True)) for row in rows]
    try:
        _rows(table.name, tuple(header)).validate_python(cells)
    except ValidationError as error:
        return _first(error), 0
    for number, row in enumerate(cells, 1):
        if "right" in row and "images" in row:
            try:
                bits_of(str(row["right"]), int(row["images"] or 0))
            except ValueError as error:
                return f"row {number}, right: {error}", len(rows)
    return None, len(rows)


@cache
def _training() -> type[BaseModel]:
    numbers: dict[str, Any] = {
        number.name: (_RANGES.get(number.unit, _NotNegative) | None, None) for number in NUMBERS
    }
    return create_model("_TrainingWithNumbers", __base__=_Training, **numbers)


@cache
def _rows(name: str, header: Sequence[str]) -> TypeAdapter[Any]:
    """Return a validator for rows of a table with these columns; cells are text or None."""
    hints = next(get_type_hints(table.row) for table in POINT_TABLES if table.name == name)
    columns: dict[str, Any] = {column: (_cell(column, hints[column]), ...) for column in header}
    row: Any = create_model(f"_{name}", **columns)
    rows: Any = GenericAlias(list, (row,))
    return TypeAdapter(rows)


def _cell(column: str, hint: Any) -> Any:
    """Return the type of a cell; a number's range follows from its unit."""
    if hint is int:
        return _Count
    if hint is str:
        return Annotated[str, Field(min_length=1)]
    number: Any = _RANGES.get(_UNIT.get(column, ""), _NotNegative)
    return number if hint is float else number | None


def _first(error: ValidationError) -> str:
    """Return pydantic's first error as one line: the place, the problem and the value."""
    first = error.errors(include_url=False)[0]
    parts = [f"row {part + 1}" if isinstance(part, int) else part for part in first["loc"]]
    place = ", ".join(part for part in parts if part not in _NOISE)
    if first["type"] == "missing":
        return f"{place}: a value is needed"
    found, message = first["input"], first["msg"].removeprefix("Input ")
    message = message.removeprefix("Value error, ")
    if isinstance(found, dict | list):
        return f"{place}: {message}"
    shown = "infinity" if isinstance(found, float) and math.isinf(found) else repr(found)
    return f"{place}: {message}, not {shown if len(shown) <= 40 else f'{shown[:37]}...'}"
