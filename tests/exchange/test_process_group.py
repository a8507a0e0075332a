"""What a process of a point knows of itself from its launcher."""

import pytest

from paceline.exchange.process_group import local_rank


@pytest.mark.parametrize(
    ("environment", "found"),
    [({"RANK": "5", "LOCAL_RANK": "1"}, 1), ({"RANK": "5"}, 5), ({}, 0)],
)
def test_the_accelerator_of_a_process_is_that_of_its_local_rank(environment, found, monkeypatch):
    """Of eight workers on two machines, the sixth is the second of its machine."""
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert local_rank() == found
