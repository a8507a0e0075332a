"""Check, before training starts, that a scheme's rule can run on the virtual clock."""

from paceline.errors import SettingError
from paceline.scheme.accounting import Accounting
from paceline.scheme.probe import messages_of, step_on_trial
from paceline.scheme.rule import AbstractScheme, Message


def check_scheme(scheme: object, workers: object, num_steps: int | None) -> None:
    """Raise SettingError for a scheme that is no rule, or sends messages unknown to the clock."""
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise SettingError("workers", f"a whole number of at least 1 is needed, not {workers!r}")
    if not isinstance(scheme, AbstractScheme):
        raise SettingError("scheme", f"{type(scheme).__name__} has no virtual form: no rule")
    Accounting(scheme, workers)  # refuses what cannot have so many workers
    if scheme.needs_end and num_steps is None:
        name = type(scheme).__name__
        raise SettingError("num_steps", f"{name} goes by the share of the run that is behind")
    first = next(messages_of(step_on_trial(scheme, workers)), None)
    if not isinstance(first, Message):
        name = type(first).__name__
        raise SettingError("scheme", f"{type(scheme).__name__} has no virtual form: {name}")
