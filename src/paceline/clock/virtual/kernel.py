"""Event kernel of the virtual clock, queues, and processors.

A process is a generator. It yields a Moment or an Event to wait for it, or None to wait until all
other processes that can continue at this instant have done so; the value of an event is the value
of the `yield`. An Operation that it yields is handed to whoever runs the kernel before the process
goes on. `happen` only schedules the waiting processes: none continues
before the calling process waits itself.
"""

import heapq
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import count
from typing import Any, Generic, NamedTuple, TypeVar

from paceline.timing.profile import SharedCores

Result = TypeVar("Result")
# A generator that yields what it waits for and operations, and returns a result.
Process = Generator[Any, Any, Result]


class Moment(NamedTuple):
    """Time on the virtual clock [virtual seconds]."""

    time: float


class Operation(tuple[Any, ...]):
    """Something to be done with vectors: its name, and what it is done to."""

    def __new__(cls, name: str, *arguments: Any) -> "Operation":
        return super().__new__(cls, (name, *arguments))


class Event:
    """Event that happens once, with a value."""

    __slots__ = ("has_happened", "value", "waiting")

    def __init__(self) -> None:
        self.has_happened = False
        self.value: Any = None
        self.waiting: list[Running] = []


# Time, order of planning, and call, which is None if it has been cancelled, or waiting process.
Plan = list[Any]


class Running(NamedTuple):
    """Process that has started, and the event of its end."""

    process: Process[Any]
    end: Event


class Kernel:
    """Runs processes in order of time; of two at one time, the one that was planned first. `now`:
    virtual seconds. `num_processes`: number of processes that have started and not ended.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.num_processes = 0
        self._planned: list[Plan] = []
        self._order = count()
        self._ready: deque[tuple[Running, Any]] = deque()

    def at(self, time: float, call: "Callable[[], object] | Running") -> Plan:
        """Plan `call` for `time`. Raises ValueError if that is before now."""
        if time < self.now:
            raise ValueError(f"planned for {time}, and it is {self.now}")
        plan: Plan = [time, next(self._order), call]
        heapq.heappush(self._planned, plan)
        return plan

    def cancel(self, plan: Plan) -> None:
        """Remove a planned call, whose time may then never come."""
        plan[2] = None

    def after(self, seconds: float) -> Moment:
        """Return the moment `seconds` after now."""
        return Moment(self.now + seconds)

    def begin(self, processes: Iterable[Process[Any]]) -> None:
        """Let processes begin, in order, as soon as the kernel runs."""
        for process in processes:
            self.num_processes += 1
            self._ready.append((Running(process, Event()), None))

    def start(self, process: Process[Any]) -> Process[Event]:
        """Run a process to its first wait, inside of another; return the event of its end, with its
        return value.
        """
        running = Running(process, Event())
        self.num_processes += 1
        yield from self._resume(running, None)
        return running.end

    def happen(self, event: Event, value: Any = None) -> None:
        """Schedule the processes that wait for `event`, in the order of their arrival."""
        event.has_happened, event.value = True, value
        if event.waiting:
            self._ready.extend([(running, value) for running in event.waiting])
            event.waiting = []

    def run(self) -> Iterator[Operation | None]:
        """Run until every process has ended or waits for what never comes. Yields the operations of
        all processes in order, and None before time advances.
        """
        while True:
            if self._ready:
                running, value = self._ready.popleft()
            else:
                yield None
                if not self._planned:
                    return
                time, _, call = heapq.heappop(self._planned)
                if call is None:
                    continue
                self.now = time
                if not isinstance(call, Running):
                    call()
                    continue
                running, value = call, None
            yield from self._resume(running, value)

    def _resume(self, running: Running, value: Any) -> Iterator[Operation]:
        send = running.process.send
        try:
            while isinstance(awaited := send(value), Operation):
                yield awaited
                value = None
        except StopIteration as stop:
            self.num_processes -= 1
            self.happen(running.end, stop.value)
            return
        if isinstance(awaited, Moment):
            self.at(awaited.time, running)
        elif awaited is None or awaited.has_happened:
            self._ready.append((running, awaited and awaited.value))
        else:
            awaited.waiting.append(running)


Item = TypeVar("Item")


class Joint(Generic[Item]):
    """Collects the items of processes at one instant; `carry_out` gets all of them, in order."""

    def __init__(
        self, kernel: Kernel, carry_out: Callable[[Sequence[Item]], Process[None]]
    ) -> None:
        self._kernel, self._carry_out = kernel, carry_out
        self._items: list[Item] = []
        self._done = Event()

    def join(self, item: Item) -> Process[None]:
        """Wait until `item` has been carried out together with the items of the other processes."""
        if not self._items:
            self._done = Event()
            yield from self._kernel.start(self._close())
        self._items.append(item)
        yield self._done

    def _close(self) -> Process[None]:
        yield None  # all processes that continue at this instant may join
        items, self._items, done = self._items, [], self._done
        yield from self._carry_out(items)
        self._kernel.happen(done)


class SingleServer:
    """Queue with one server, which a process occupies from `enter` to `leave`. Waiting processes
    are served in the order of their arrival, urgent ones before the others. `busy_seconds`: virtual
    seconds in which it served.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._urgent: deque[Event] = deque()
        self._waiting: deque[Event] = deque()
        self._busy = False
        self._since = 0.0
        self.busy_seconds = 0.0

    def enter(self, *, urgent: bool = False) -> Process[None]:
        """Wait until the server is free, and occupy it."""
        if self._busy:
            freed = Event()
            (self._urgent if urgent else self._waiting).append(freed)
            yield freed
        self._busy, self._since = True, self._kernel.now

    def leave(self) -> None:
        """Free the server for the next process in the queue."""
        self.busy_seconds += self._kernel.now - self._since
        line = self._urgent or self._waiting
        self._busy = bool(line)
        if line:
            self._kernel.happen(line.popleft())


class ProcessorSharing:
    """Server of all its work at once, each piece at a speed by its weight: what a fair scheduler,
    or one link for fair flows, does in the long run (Kleinrock 1976, Queueing Systems, volume 2,
    section 4.4). `speed(n)`: speed of n pieces of work together; `speed(1)` is 1.
    """

    def __init__(self, kernel: Kernel, speed: Callable[[int], float]) -> None:
        self._kernel, self._speed = kernel, speed
        self._speeds: dict[int, float] = {}  # by number of pieces
        self._done = 0.0  # of each piece of weight 1, since the first was begun [seconds]
        self._since = 0.0  # of which moment that is
        # heap: `_done` at the end, order of beginning, event of the end, weight
        self._ends: list[tuple[float, int, Event, float]] = []
        self._weight = 0.0  # of all pieces
        self._order = count()
        self._plan: Plan | None = None

    def begin(self, seconds: float, weight: float = 1.0) -> Event:
        """Begin work that takes `seconds` by itself; return its end."""
        self._advance()
        ended, end = Event(), self._done + seconds / weight
        heapq.heappush(self._ends, (end, next(self._order), ended, weight))
        self._weight += weight
        self._replan()
        return ended

    def _share(self) -> float:
        """Return the speed of a piece of weight 1."""
        busy = len(self._ends)
        if busy not in self._speeds:
            self._speeds[busy] = self._speed(busy)
        return self._speeds[busy] / self._weight

    def _advance(self) -> None:
        if self._ends:
            self._done += (self._kernel.now - self._since) * self._share()
        self._since = self._kernel.now

    def _replan(self) -> None:
        if self._plan is not None:
            self._kernel.cancel(self._plan)
        seconds = max(0.0, self._ends[0][0] - self._done) / self._share()
        self._plan = self._kernel.at(self._kernel.now + seconds, self._end)

    def _end(self) -> None:
        self._plan = None
        self._advance()
        self._done, _, ended, weight = heapq.heappop(self._ends)  # exactly
        self._weight = self._weight - weight if self._ends else 0.0
        self._kernel.happen(ended)
        if self._ends:
            self._replan()


class Cores:
    """Processors of a cluster; `shared`: None if each process has its own."""

    def __init__(self, kernel: Kernel, shared: SharedCores | None) -> None:
        self._kernel = kernel
        self._sharing = None if shared is None else ProcessorSharing(kernel, shared.speed)

    @property
    def shared(self) -> bool:
        """True if work lasts longer while other processes are busy."""
        return self._sharing is not None

    def busy(self, seconds: float) -> Moment | Event:
        """Return the end of work that begins now and takes `seconds` if nobody else is busy."""
        return self._sharing.begin(seconds) if self._sharing else self._kernel.after(seconds)


class Buses:
    """One bus for each node, which passes a message at a time; none if `num_nodes` is 0."""

    def __init__(self, kernel: Kernel, cores: Cores, num_nodes: int) -> None:
        self._cores = cores
        self._lines = [SingleServer(kernel) for _ in range(num_nodes)]

    @property
    def shared(self) -> bool:
        """True if messages inside a node wait for each other."""
        return bool(self._lines)

    def carry(self, node: int, seconds: float) -> Process[None]:
        """Pass a message that takes `seconds` by itself inside a node."""
        if self._lines:
            yield from self._lines[node].enter()
        yield self._cores.busy(seconds)
        if self._lines:
            self._lines[node].leave()
