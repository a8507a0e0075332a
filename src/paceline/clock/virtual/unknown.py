"""Stand-in for the vectors of a run that is simulated without values."""

from typing import Any, NoReturn

from paceline.errors import SettingError


class Unknown:
    """A vector whose values are not known: whatever is computed with it is not known either. Raises
    SettingError("scheme") for a rule that would choose by values, since it decides what happens
    when before any value is computed.
    """

    def __getattr__(self, name: str) -> Any:
        return UNKNOWN

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return UNKNOWN

    @classmethod
    def __torch_function__(cls, *args: Any) -> Any:
        """Stand for the results of functions of torch."""
        return UNKNOWN

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __call__
    __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __matmul__ = __rmatmul__ = __call__
    __eq__ = __ne__ = __call__
    __hash__ = object.__hash__
    __neg__ = __abs__ = __getitem__ = __lt__ = __le__ = __gt__ = __ge__ = __call__

    def _refuse(self, *args: Any) -> NoReturn:
        message = "its rule chooses by the values of a vector, which no virtual clock can foresee"
        raise SettingError("scheme", message)

    __bool__ = __int__ = __float__ = __len__ = __iter__ = __index__ = _refuse


UNKNOWN: Any = Unknown()
GRADIENT: Any = Unknown()  # of a step, which a rule may send as it is
