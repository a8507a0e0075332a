"""The laws of schemes hold across a resume, also where workers do not wait for each other: no
update is lost, and none is in the weights twice.
"""

import pytest
from torch.testing import assert_close

from paceline.cluster.supervisor import ProcessFailure
from paceline.record.checkpoint import latest
from paceline.scheme.counts import Counts
from tests.clock.test_laws import LAWS
from tests.tiny import point_of, run_tiny, tiny_point

OFTEN = 1e-6  # s between checkpoints: after each step
TURN = 6  # steps of each worker before it dies
SETTINGS = [
    ("post_local_sgd", {"scheme__switch_at": 0.5}),
    ("diloco", {"scheme__period": 2}),
    ("sync_gossip", {"scheme__graph": "ring"}),
    ("async_parameter_server", {"scheme__servers": 2}),
    ("sync_parameter_server", {"scheme__group_size": 2, "scheme__servers": 2}),
    ("sync_parameter_server", {"scheme__backup_workers": 1}),
    ("stale_synchronous", {"scheme__bound": 1, "scheme__servers": 2}),
    ("stale_synchronous", {"scheme__bound": 0, "scheme__group_size": 2}),
    ("mixed", {"scheme__group_size": 2, "scheme__servers": 2}),
    ("sync_then_async", {"scheme__switch_at": 0.45}),
    ("sync_then_async", {"scheme__switch_at": 0.5, "scheme__group_size": 2}),
    ("elastic_averaging", {"scheme__period": 3}),
    ("gossip", {"scheme__graph": "ring"}),
    ("independent", {}),
]


def law_of(scheme, settings):
    """The first law of the scheme with such settings and several workers."""
    return next(
        law for law in LAWS[scheme] if law.workers > 1 and settings.items() <= law.settings.items()
    )


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "settings"), SETTINGS)
def test_the_law_holds_across_a_resume(scheme, settings, tmp_path):
    resume(scheme, settings, tmp_path)


def resume(scheme, settings, folder, rtol=1e-12, **where):
    """Let all workers of the law die once; `where`: further settings."""
    law = law_of(scheme, settings)
    graves = folder / "graves"
    graves.mkdir()
    config = tiny_point(
        scheme,
        law.workers,
        4,
        model___target_="tests.run.mortal.MortalClassifier",
        model__graves=str(graves),
        model__turn=TURN,
        training__checkpoint_seconds=OFTEN,
        **law.settings,
        **where,
    )
    with pytest.raises(ProcessFailure, match="SIGKILL"):
        run_tiny(config, folder)
    before = latest(folder)
    assert 0 < before.samples < 3 * 48
    for rank in range(law.workers):
        (graves / str(rank)).touch()  # whoever was ended by the launcher
    seen, weights = run_tiny(config, folder)
    assert all(report.resumes == 1 for report in seen.training)
    assert_close(weights, law.expected(config, seen), rtol=rtol, atol=1e-14)
    taken = sum(worker.steps for worker in seen.workers)
    for server in seen.servers:
        assert server.samples == 3 * 48
        behind = Counts(point_of(config).scheme, law.workers).steps_per_push * 4
        assert (len(server.pushes) - len(server.dropped_steps)) * behind == server.samples
        taken -= len(server.dropped_steps) * law.settings.get("scheme__group_size", 1)
    assert taken * 4 == 3 * 48
