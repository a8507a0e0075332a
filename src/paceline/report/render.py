"""Fills the templates of pages, so that no text of a study is taken for markup."""

import json
import re
from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from paceline.errors import printable

_MARKUP = re.compile(r"[\\`\[\]|]")  # of code, links and tables; emphasis is harmless


def render(template: str, content: Mapping[str, Any]) -> str:
    """Return the file `template` of templates/, filled with `content`."""
    environment = Environment(
        loader=PackageLoader("paceline.report"),
        autoescape=lambda name: bool(name and ".html" in name),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "cell": markdown,
        "folded": folded,
    }
    return environment.get_template(template).render(content)


def folded(text: str) -> Markup:
    """Return the text of a cell as HTML, with the interval and n on a second line."""
    mean, mark, spread = str(text).partition(" (")
    if not (mark and ", n = " in spread):
        return Markup.escape(text)
    return Markup('{}<br><small class="spread">({}</small>').format(mean, spread)


def markdown(text: str) -> str:
    """Return a text as one line of Markdown in which no markup and no control character is left."""
    line = printable(" ".join(str(text).split()))
    return _MARKUP.sub(r"\\\g<0>", line.replace("&", "&amp;").replace("<", "&lt;"))


def safe_json(value: object) -> Markup:
    """Return JSON that is safe inside a script element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c"))
