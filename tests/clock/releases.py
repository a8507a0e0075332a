"""What servers do with pushes, written again without the schemes, to check laws against."""

from collections import Counter


def releasing(config):
    """One server's rule: from a push to the workers in an update, and to those who are answered."""
    scheme = config["scheme"]
    pushing = range(0, config["workers"], scheme.get("group_size", 1))
    match config["names"]["scheme"]:
        case "sync_parameter_server":
            return together(len(pushing) - scheme["backup_workers"])
        case "stale_synchronous":
            return bounded(pushing, scheme["bound"])
        case "sync_then_async":
            return switched(len(pushing), scheme["switch_at"])
        case "async_parameter_server" | "mixed":
            return at_once
        case other:
            raise ValueError(f"there is no rule for {other}: write it in tests/clock/releases.py")


def at_once(worker, staleness=0, progress=0.0):
    return [worker], [worker]


def together(needed):
    waiting = []

    def arrive(worker, staleness, progress):
        if staleness > 0:
            return [], [worker]
        waiting.append(worker)
        if len(waiting) < needed:
            return [], []
        released = waiting.copy()
        waiting.clear()
        return released, released

    return arrive


def bounded(workers, bound):
    steps, held = Counter({worker: 0 for worker in workers}), set()

    def arrive(worker, staleness, progress):
        steps[worker] += 1
        held.add(worker)
        answered = {each for each in held if steps[each] <= min(steps.values()) + bound}
        held.difference_update(answered)
        return [worker], answered

    return arrive


def switched(workers, switch_at):
    early = together(workers)

    def arrive(worker, staleness, progress):
        return (early if progress < switch_at else at_once)(worker, staleness, progress)

    return arrive


def damped(scheme, gradient, now, read):
    """As Zheng 2017 (ICML; lambda constant) has it."""
    if scheme.get("damping") == "delay_compensation":
        return gradient * (1 + scheme["compensation"] * gradient * (now - read))
    return gradient


def damped_rate(scheme, staleness):
    """Factor on the rate, as Zhang 2016 (IJCAI) has it."""
    damps = scheme.get("damping") == "inverse_staleness" and staleness > 1
    return 1 / staleness if damps else 1.0
