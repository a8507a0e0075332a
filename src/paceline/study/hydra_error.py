"""Translation of Hydra's errors into one line that names the setting."""

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException
from omegaconf.errors import OmegaConfBaseException

from paceline.errors import SettingError, did_you_mean

_GROUPS = ("data", "model", "scheme", "cluster", "workload", "training", "measurement", "sweep")


def as_setting_error(error: Exception, setting: str) -> SettingError:
    """Translate an error. `setting`: name to use if Hydra does not report which one is wrong."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, name = error.missing_cfg_file.rpartition("/")
        meant = did_you_mean(name, error.options)
        known = ", ".join(error.options)
        return SettingError(group, f"there is no {name}{meant}; there are: {known}")
    if isinstance(error, ConfigCompositionException) and error.__cause__ is not None:
        error = error.__cause__ if isinstance(error.__cause__, Exception) else error
    text = " ".join(str(error).split())
    unknown = re.search(r"Key '([^']+)' is not in struct full_key: (\S+)", text)
    if unknown:
        return SettingError(unknown[2], "there is no such setting")
    missing = re.search(r"Missing mandatory value: .*full_key: (\S+)", text)
    if missing:
        return SettingError(missing[1], "a value is needed")
    follows = re.search(r"raised while resolving interpolation: (.*) full_key: (\S+)", text)
    if follows:
        return SettingError(follows[2], follows[1])
    return SettingError(setting, re.split(r" (?:reference|object)_type=", text)[0])


@contextmanager
def hydra_errors(setting: str) -> Generator[None]:
    """Turn Hydra's errors inside into SettingErrors, see `as_setting_error`."""
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise as_setting_error(error, setting) from error


def check_groups(overrides: Sequence[str]) -> None:
    """Raise SettingError for a group of settings that is set to nothing or to a number, and for a
    setting that is none of the command line.
    """
    for name, _, value in (word.partition("=") for word in overrides):
        if name.lstrip("+~").partition(".")[0] == "names":
            raise SettingError(name, "names are those of the chosen files")
        if name.lstrip("+~") == "grids":
            raise SettingError(name, "grids stand in a file of experiments/; train -m a=1,2 sweeps")
        if name in _GROUPS and re.fullmatch(r"null|[\d.]*", value):
            raise SettingError(name, f"a file of conf/{name} is needed, not {value or 'nothing'}")
