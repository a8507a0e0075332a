"""Defines the error that a wrong setting of the user's raises, and helps to word messages."""

import errno
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
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
        return printable(f"{self.setting}: {' '.join(self.message.split())}")


@contextmanager
def refused(
    setting: str, what: str, *, named: bool = False, passing: tuple[type[Exception], ...] = ()
) -> Generator[None]:
    """Turn an error of code from outside, inside the context, into a SettingError: its message is
    `what` and the error's first line, with the error's class if `named`. A SettingError and errors
    of the classes `passing` stay as they are.
    """
    try:
        yield
    except (SettingError, *passing):
        raise
    except Exception as error:  # code from outside may raise anything
        name = f"{type(error).__name__}: " if named else ""
        raise SettingError(setting, f"{what}: {name}{first_line(error)}") from error


OF_MACHINE = (OSError, MemoryError)  # errors that say nothing of a setting
_OF_ENVIRONMENT = {  # of the machine, its disks, its limits or its network
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EFBIG),
    *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ESTALE, errno.ENODEV),
    *(errno.EADDRNOTAVAIL, errno.EADDRINUSE, errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTUNREACH),
}


def said_of_environment(error: BaseException) -> str | None:
    """Return in one line what the machine or the network refused; None for any other error."""
    if isinstance(error, MemoryError):
        return "there is not enough memory"
    if not isinstance(error, OSError) or error.errno not in _OF_ENVIRONMENT:
        return None
    what = f"{error.filename}: " if error.filename is not None else ""
    return f"{what}{error.strerror}"


def printable(text: str) -> str:
    """Return `text` with each control character but a line feed as its escape sequence, as \\x1b.

    Texts of records and of errors can hold sequences that a terminal carries out.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def tell(message: str) -> None:
    """Print a line for the user on standard error; standard output is for results."""
    print(f"paceline: {printable(message)}", file=sys.stderr, flush=True)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `, did you mean ...?` for an unknown name that is close to a known one, else ""."""
    close = get_close_matches(name, list(known), n=1)
    return f", did you mean {close[0]}?" if close else ""


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, or its name if it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
