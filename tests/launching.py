"""Processes of a run that call a function of tests or benchmarks."""

from paceline.cluster.launcher import launch_task
from paceline.cluster.supervisor import Task


def launch(
    target, arguments, *, workers, servers, log_folder, shards=1, timeout_seconds=600, **where
):
    """Call `target`, written module:function, in workers + servers processes; `where`: as in
    `launch_task`.
    """
    task = Task(target, arguments, workers, servers, log_folder, shards, timeout_seconds)
    return launch_task(task, **where)
