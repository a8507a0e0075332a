"""A process that only counts workers."""

from paceline.exchange.process_group import count_workers, join


def count(workers):
    join(10, "cpu")
    return count_workers(workers, is_worker=True)
