"""Anybody's module, optimizer, schedule, callbacks and data: they work, or are refused by name."""

import re

import pytest

from tests.compatibility.asked import ASKED
from tests.compatibility.places import WORKS, beside_server, own_weights, trained, virtual
from tests.tiny import REPOSITORY

PAGE = REPOSITORY / "docs/what_works.md"
VIRTUAL, SERVERS, OWN, PIPELINE = range(4)
LISTS = {"in all four": [WORKS] * 4, "with each strategy": [*[WORKS] * 3, "-"]}  # two rows of names


def rows():
    """What the page says: outcomes by name, each as `places` returns it."""
    cells = [
        [cell.strip() for cell in line.strip("|\n").split("|")]
        for line in PAGE.read_text().partition("\n## Hooks")[0].splitlines()
        if line.startswith("| ")
    ]
    said = {
        name: [_read(cell) for cell in said]
        for names, *said in cells
        for name in names.split("; ")
        if name in ASKED
    }
    for name, *said_of in cells:
        if outcomes := LISTS.get(name.partition(";")[0]):
            said |= dict.fromkeys(said_of[0].split("; "), outcomes)
    return said


def _read(cell):
    found = re.fullmatch(r"(refused.*): `(.+)`", cell)
    return f"{found[1]}: {found[2]}" if found else cell


TABLE = rows()


def test_the_page_has_what_is_tried_and_nothing_else():
    assert sorted(TABLE) == sorted(ASKED)


@pytest.mark.parametrize("name", ASKED)
def test_on_the_virtual_clock(name, tmp_path):
    assert virtual(name, tmp_path) == TABLE[name][VIRTUAL]


def said_of(place):
    return {name: row[place] for name, row in TABLE.items()}


@pytest.mark.slow
def test_with_parameter_servers(tmp_path):
    assert beside_server(said_of(SERVERS), tmp_path) == said_of(SERVERS)


@pytest.mark.slow
def test_with_weights_of_each_worker(tmp_path):
    assert own_weights(tmp_path) == said_of(OWN)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, said in TABLE.items() if said[PIPELINE] != "-"])
def test_in_the_pipeline(name, tmp_path):
    assert trained(name, tmp_path) == TABLE[name][PIPELINE]


def test_what_the_pipeline_does_not_offer_are_options_of_a_trainer():
    left_out = {name for name, said in TABLE.items() if said[PIPELINE] == "-"}
    assert left_out == {name for name, asked in ASKED.items() if asked.options}
