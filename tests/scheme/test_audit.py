"""Logs by hand: those of each kind of rule, and the same with one line that breaks it."""

import pytest

from paceline.scheme.async_parameter_server import AsyncParameterServer
from paceline.scheme.audit import Averaged, RunLog, ServedLog
from paceline.scheme.gossip import Gossip
from paceline.scheme.stale_synchronous import StaleSynchronous
from paceline.scheme.sync_parameter_server import SyncParameterServer
from paceline.scheme.sync_then_async import SyncThenAsync


def log_of(pushes, workers=(0, 1), dropped=(), steps=None, grants=True):
    counted = {worker: sum(each == worker for each, _ in pushes) for worker in workers}
    served = ServedLog(pushes, dropped, workers, grants)
    return RunLog(counted if steps is None else steps, [served])


AT_ONCE = [(0, 0), (1, 1), (0, 1), (0, 0), (1, 2), (0, 1)]
TOGETHER = [(0, 0), (1, 0), (1, 0), (0, 0), (0, 0), (1, 0)]
LED_BY_TWO = [(0, 0), (0, 0), (1, 2), (0, 1), (1, 1), (0, 1), (1, 1), (1, 0)]
SWITCHED = [*TOGETHER[:4], (0, 0), (0, 0), (1, 2), (0, 1)]
WITH_BACKUP = [(0, 0), (1, 0), (2, 1), (2, 0), (0, 0), (1, 1), (0, 0), (1, 0), (2, 1)]
LATE = [(2, 0), (1, 1), (2, 2)]

KEPT = [
    (AsyncParameterServer(1), log_of(AT_ONCE)),
    (AsyncParameterServer(1), log_of([])),
    (AsyncParameterServer(2), log_of([*AT_ONCE, (0, 0)], grants=False)),
    (SyncParameterServer(1), log_of(TOGETHER)),
    (SyncParameterServer(1), log_of([*TOGETHER, (1, 0), (1, 0)])),  # 0 has left
    (SyncParameterServer(1, 1), log_of(WITH_BACKUP, (0, 1, 2), LATE)),
    (StaleSynchronous(1, 2), log_of(LED_BY_TWO)),
    (StaleSynchronous(1, 1), log_of(LED_BY_TWO)),
    (StaleSynchronous(1, 0), log_of(TOGETHER)),
    (SyncThenAsync(1, 0.5), log_of(SWITCHED)),
    (SyncThenAsync(1, 0), log_of(AT_ONCE)),
    (SyncThenAsync(1, 1), log_of(TOGETHER)),
    (
        AsyncParameterServer(1, group_size=2),
        log_of([(0, 0), (2, 1), (0, 1)], (0, 2), steps={0: 2, 1: 2, 2: 1, 3: 1}),
    ),
]


RARELY_STALE = [*[(0, 0)] * 5000, (1, 5000), *[(1, 0)] * 4999]  # one after the other
BROKEN = [
    (AsyncParameterServer(1), log_of([(0, 0), (1, 0)]), "push 1 of worker 1 was 0 late, 1 if"),
    (AsyncParameterServer(1), log_of([*AT_ONCE, (1, 2)]), "push 6 of worker 1 was 2 late, 1 if"),
    (AsyncParameterServer(1), log_of(RARELY_STALE), "worker 1 pushed twice while another's last"),
    (SyncParameterServer(1), log_of([*TOGETHER, (0, 1)]), "push 6 of worker 0 was 1 late, and"),
    (
        SyncParameterServer(1),
        log_of([(0, 0), (0, 0), (1, 0)]),
        "push 1 of worker 0 met an update of 1 of 2",
    ),
    (
        SyncParameterServer(1, 1),
        log_of(WITH_BACKUP, (0, 1, 2), LATE[1:]),
        "push 2 of worker 2 was 1 late, and applied",
    ),
    (StaleSynchronous(1, 0), log_of(LED_BY_TWO), "push 1 of worker 0 was of a step that led by 1"),
    (StaleSynchronous(1, 3), log_of([*[(0, 0)] * 5, (1, 5)]), "push 4 of worker 0 was of a step"),
    (StaleSynchronous(1, 1), log_of([(0, 0), (1, 2)]), "push 1 of worker 1 was 2 late, more than"),
    (SyncThenAsync(1, 0.9), log_of(SWITCHED), "push 5 of worker 0 met an update of 1 of 2"),
    (SyncThenAsync(1, 0.2), log_of(SWITCHED), "push 3 of worker 0 was 0 late, 1 if at once"),
    (SyncThenAsync(1, 0.5), log_of(AT_ONCE), "push 1 of worker 1 was 1 late, and applied"),
    (
        AsyncParameterServer(1, group_size=2),
        log_of([(0, 0), (1, 1)], (0,)),
        "worker 1 pushed without its group",
    ),
    (
        AsyncParameterServer(1, group_size=2),
        log_of([(0, 0)], (0,), steps={0: 1, 1: 2}),
        "worker 1 took 2 steps, and its",
    ),
]


def pairs(asks, answers):
    averages = {1: [Averaged(*each) for each in asks], 0: [Averaged(*each) for each in answers]}
    return Gossip("ring").broken(RunLog({0: 4, 1: 4}, averages=averages))


def test_a_log_of_the_rule_has_no_line_that_breaks_it_and_others_tell_it():
    for scheme, log in KEPT:
        assert scheme.broken(log) == "", scheme
    for scheme, log, line in BROKEN:
        assert scheme.broken(log).startswith(f"server 0: {line}"), (scheme, line)
    good, bad = log_of(AT_ONCE), log_of([(0, 1), *AT_ONCE[1:]])
    both = RunLog(good.steps, [*good.servers, *bad.servers])
    assert AsyncParameterServer(2).broken(both).startswith("server 1: push 0 of worker 0")


@pytest.mark.parametrize(
    ("asks", "answers", "line"),
    [
        ([(0, 0, 1), (0, 1, 3)], [(1, 0, 0), (1, 2, 2)], None),
        ([(0, 0, 1)], [(1, 0, 0), (1, 2, 2)], None),  # one is under way at the end
        ([(0, 0, 2), (0, 1, 3)], [(1, 0, 0)] * 2, "worker 1 sent to 0 before it held the mean"),
        ([(0, 0, 5)], [(1, 0, 0)], "worker 1 sent to 0 before it held"),
        ([(0, 0, 1), (0, 1, 2)], [(1, 0, 0)], "worker 1 tells of 2 means with 0, that of 1"),
        ([], [(1, 0, 0)] * 2, "worker 0 tells of 2 means with 1, that of 0"),
        ([(3, 0, 1)], [], "worker 1 took a mean with 3, of the same kind"),
        ([], [], "no two took a mean"),
    ],
)
def test_pairs_of_one_mean_at_a_time_are_gossip_and_nothing_else_is(asks, answers, line):
    found = pairs(asks, answers)
    assert found == "" if line is None else found.startswith(line)
