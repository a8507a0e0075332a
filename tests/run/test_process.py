import pytest

from tests.tiny import run_tiny, tiny_point

PACED = {"cluster__step_seconds": 0.005}


@pytest.mark.parametrize(
    ("scheme", "pace", "yielding"),
    [
        ("async_parameter_server", PACED, ["gave_way_0", "gave_way_1"]),
        ("async_parameter_server", {}, []),
        ("sync_allreduce", PACED, []),
    ],
)
def test_paced_workers_alone_give_way_to_servers_on_their_machine(scheme, pace, yielding, tmp_path):
    run_tiny(tiny_point(scheme, 2, 4, **pace), tmp_path)
    assert sorted(path.name for path in tmp_path.glob("gave_way_*")) == yielding
