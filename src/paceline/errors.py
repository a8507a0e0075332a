"""Defines the error that a wrong setting of the user's raises, and helps to word messages."""

from collections.abc import Iterable
from difflib import get_close_matches


class SettingError(Exception):
    """Error of an invalid setting. The command line prints it on one line and exits with 2.

    `setting`: name of the setting on the command line, for example `data.root`.
    """

    def __init__(self, setting: str, message: str) -> None:
        super().__init__(setting, message)
        self.setting = setting
        self.message = message

    def __str__(self) -> str:
        return f"{self.setting}: {' '.join(self.message.split())}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `, did you mean ...?` for an unknown name that is close to a known one, else ""."""
    close = get_close_matches(name, list(known), n=1)
    return f", did you mean {close[0]}?" if close else ""


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, or its name if it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
