"""Files with something wrong in one of them, as a disk, a merge or a stranger leaves them."""

import json

import yaml
from hypothesis import strategies as st

WRONG = (None, True, -1, 0.5, float("nan"), float("inf"), 10**30, "x", "\ud800", [], [1], {"a": 1})
CELLS = ("", "x", "-1", "0.5", "nan", "inf", "1e999", '"', "1,2", "[]", "<script>", "\0", "../x")
KINDS = ("no file", "cut", "no line", "twice", "order", "a byte", "a value", "a value")


@st.composite
def damages(draw, whole):
    """The name of one of the files, and what is left of its content; None if nothing is.

    `whole`: the content of CSV, JSON and YAML files by name.
    """
    name = draw(st.sampled_from(sorted(whole)))
    content = whole[name]
    lines, at = content.splitlines(keepends=True), draw(st.integers(0, len(content) - 1))
    line = draw(st.integers(0, len(lines) - 1))
    other = draw(st.integers(0, len(lines) - 1))
    match draw(st.sampled_from(KINDS)):
        case "no file":
            return name, None
        case "cut":
            return name, content[:at]
        case "a byte":
            return name, content[:at] + bytes([draw(st.integers(0, 255))]) + content[at + 1 :]
        case "no line":
            del lines[line]
        case "twice":
            lines = [*lines[:line], *lines[other:]]
        case "order":
            lines[line], lines[other] = lines[other], lines[line]
        case _ if name.endswith(".csv"):
            cells = lines[line].decode().rstrip().split(",")
            cells[draw(st.integers(0, len(cells) - 1))] = draw(st.sampled_from(CELLS))
            lines[line] = f"{','.join(cells)}\n".encode()
        case _:
            values = yaml.safe_load(content)
            inner = values
            while isinstance(inner[at := draw(st.sampled_from(sorted(inner)))], dict):
                if not inner[at] or draw(st.booleans()):
                    break
                inner = inner[at]
            inner[at] = draw(st.sampled_from(WRONG))
            dump = json.dumps if name.endswith(".json") else yaml.safe_dump
            return name, dump(values).encode()
    return name, b"".join(lines)
