"""Says findings in words: fills the places of the sentences in templates/phrases.yaml.

Which sentence holds, and with which numbers, is decided where it is used; how it is said, and with
how many digits, is decided in that table.
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import yaml
from jinja2 import Environment, StrictUndefined, Template

from paceline.report.number_format import FORMS


def say(name: str, numbers: Mapping[Any, Any] | None = None, /, **more: Any) -> str:
    """Return the phrase `name`, with its places filled from `numbers` and `more`.

    Raises KeyError without such a phrase, and jinja2.UndefinedError without one of its numbers.
    """
    return _phrases()[name].render(dict(numbers if numbers is not None else {}) | more)


@cache
def _phrases() -> Mapping[str, Template]:
    text = (files("paceline.report") / "templates/phrases.yaml").read_text()
    environment = Environment(undefined=StrictUndefined, autoescape=False)  # pages escape
    environment.filters |= {each.__name__: each for each in FORMS}
    return {name: environment.from_string(each) for name, each in yaml.safe_load(text).items()}
