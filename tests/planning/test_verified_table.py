"""What was measured beside what was counted, by hand."""

from types import SimpleNamespace

from paceline.planning.measured_peak import Peak
from paceline.planning.verified_table import peak_table


def planned(batch_size, peak):
    memory = SimpleNamespace(peak=peak)
    return SimpleNamespace(batch_size=batch_size, measured=SimpleNamespace(memory=memory))


def test_counted_memory_is_held_against_what_torch_allocated():
    lines = peak_table(
        [planned(32, 110_000_000), planned(1024, 90_000_000)],
        [Peak(100_000_000, 130_000_000), Peak(100_000_000, None)],
    ).splitlines()
    assert [line.split() for line in lines[1:3]] == [
        ["32", "110", "100", "+10.0", "%", "130"],
        ["1,024", "90.00", "100", "-10.0", "%", "-"],
    ]
