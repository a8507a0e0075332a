"""Turns exchanges.csv of a study into its tables of conclusions."""

from pathlib import Path

from paceline.analysis.analyse import FOLDER, table_path
from paceline.analysis.exchanges import exchange_seconds, read_exchanges
from paceline.analysis.frames import write_table
from paceline.analysis.recommendation import recommendation

TABLES = (exchange_seconds, recommendation)


def analyse_exchanges(folder: Path) -> None:
    """Write a CSV for each of TABLES, by its name; `folder` is reports/<study>.

    Equal tables result in equal bytes. Raises SettingError("study") without exchanges.csv.
    """
    exchanges = read_exchanges(folder)
    (folder / FOLDER).mkdir(exist_ok=True)
    for make in TABLES:
        write_table(table_path(folder, make.__name__), make(exchanges))
