"""Check, before training starts, that a scheme's rule can run on the virtual clock."""

from typing import Any

from paceline.clock.run_spec import RunSpec
from paceline.errors import SettingError
from paceline.scheme.accounting import Accounting
from paceline.scheme.probe import messages_of, step_on_trial
from paceline.scheme.rule import AbstractScheme, Message


def check_scheme(scheme: object, run: RunSpec) -> None:
    """Raise SettingError for a scheme that is no rule, or sends messages unknown to the clock."""
    workers: Any = run.num_workers  # anybody may have given anything
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise SettingError("workers", f"a whole number of at least 1 is needed, not {workers!r}")
    if not isinstance(scheme, AbstractScheme):
        raise SettingError("scheme", f"{type(scheme).__name__} has no virtual form: no rule")
    Accounting(scheme, workers)  # refuses what cannot have so many workers
    if scheme.needs_end and run.num_steps is None:
        name = type(scheme).__name__
        raise SettingError("num_steps", f"{name} goes by the share of the run that is behind")
    first = next(messages_of(step_on_trial(scheme, workers)), None)
    if not isinstance(first, Message):
        name = type(first).__name__
        raise SettingError("scheme", f"{type(scheme).__name__} has no virtual form: {name}")
