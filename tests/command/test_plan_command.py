"""`paceline plan` heeds each of its options, or refuses it by name."""

import pytest

from tests.command_line import run

SMALL = ("plan", "data=synthetic", "batch_size=8")


@pytest.mark.parametrize("option", [("--memory", "2GB"), ("--verify",)])
def test_of_a_modelled_cluster_there_are_the_lemmas_alone(option, root):
    code, lines, errors = run(root, *SMALL, "cluster=virtual", *option)
    name = option[0].removeprefix("--")
    why = "a modelled cluster is planned by lemmas only; leave this option out"
    assert (code, lines, errors) == (2, [], [f"paceline: {name}: {why}"])


def test_memory_is_what_was_asked_for(root):
    code, lines, (error,) = run(root, *SMALL, "--memory", "plenty")
    assert (code, lines) == (2, [])
    assert error.startswith("paceline: memory: ")
    assert "plenty" in error
