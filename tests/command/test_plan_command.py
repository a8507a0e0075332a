"""`paceline plan` heeds each of its options, or refuses it by name."""

from tests.command_line import run

SMALL = ("plan", "data=synthetic", "batch_size=8")


def test_memory_is_what_was_asked_for(root):
    code, lines, (error,) = run(root, *SMALL, "--memory", "plenty")
    assert (code, lines) == (2, [])
    assert error.startswith("paceline: memory: ")
    assert "plenty" in error
