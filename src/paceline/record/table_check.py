"""Checks the tables of a record. One of earlier code may lack tables, columns and cells."""

import csv
from collections.abc import Mapping

from paceline.record.fields import fault_of_value, types_of
from paceline.record.rows import POINT_TABLES, PointTable, bits_of

_NEEDED = ("curve", "staleness", "phases")  # of every training that did not fail


def fault_of_tables(texts: Mapping[str, str], status: str) -> str | None:
    """Return why the tables of a training are invalid, or None.

    `texts`: content of the record's CSV files, by the name of the table.
    """
    for table in POINT_TABLES:
        fault = None
        if table.name in texts:
            fault = _fault_of_table(table, texts[table.name])
        elif table.name in _NEEDED and status != "failed":
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
    kinds = types_of(table.row)
    for number, row in enumerate(rows, 1):
        if len(row) != len(header):
            return f"row {number} has {len(row)} cells, not {len(header)}"
        cells = dict(zip(header, row, strict=True))
        for name, cell in cells.items():
            if cell and (fault := fault_of_value(kinds[name], cell, strict=False)):
                return f"row {number}, {name}: {fault}"
        try:
            if "right" in cells:
                bits_of(cells["right"], int(cells.get("images") or 0))
        except ValueError as error:
            return f"row {number}, right: {error}"
    return None
