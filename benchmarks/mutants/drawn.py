"""Which faults are tried: those that are known, and so many of each room as it is large.

A rule draws the others: in each room, kinds of fault by turns, and within a kind by the hash of the
fault with the seed. So a change of one file changes hardly anything of what is drawn elsewhere.
"""

import hashlib
from collections import defaultdict
from itertools import chain, zip_longest
from pathlib import Path

import yaml

from benchmarks.mutants.faults import RULES, SOURCE, TEMPLATE, Fault, faults_of

KNOWN = Path(__file__).with_name("known.yaml")


def drawn(root: Path, number: int, seed: int) -> list[Fault]:
    """`number` faults by the rule, after those that are known."""
    found, lines = defaultdict[str, list[Fault]](list), defaultdict[str, int](int)
    for file in sorted((root / SOURCE).rglob("*.py")):
        path = file.relative_to(root).as_posix()
        if not path.startswith(TEMPLATE):
            for fault in faults_of(root, path):
                found[fault.room].append(fault)
                lines[fault.room] += 1
    shares = _shares(lines, number)
    known = known_faults(root)
    taken = {(fault.path, fault.before) for fault in known}
    for room in sorted(found):
        free = [fault for fault in found[room] if (fault.path, fault.before) not in taken]
        known += _by_turns(free, seed)[: shares[room]]
    return known


def _shares(sizes: dict[str, int], number: int) -> dict[str, int]:
    """Largest remainders; one for the smallest room too."""
    total = sum(sizes.values())
    exact = {room: number * size / total for room, size in sizes.items()}
    shares = {room: max(1, int(share)) for room, share in exact.items()}
    for room in sorted(exact, key=lambda room: int(exact[room]) - exact[room]):
        if sum(shares.values()) < number:
            shares[room] += 1
    return shares


def _by_turns(faults: list[Fault], seed: int) -> list[Fault]:
    def rank(fault: Fault) -> str:
        return hashlib.sha256(f"{seed} {fault.key}".encode()).hexdigest()

    kinds = [sorted((f for f in faults if f.rule == rule), key=rank) for rule in RULES]
    return [each for each in chain.from_iterable(zip_longest(*kinds)) if each is not None]


def known_faults(root: Path) -> list[Fault]:
    """Those of `known.yaml`, each a line that must be there once."""
    found = []
    for name, each in yaml.safe_load(KNOWN.read_text()).items():
        lines = (root / each["path"]).read_text().splitlines()
        places = [n for n, line in enumerate(lines) if line.strip() == each["before"]]
        if len(places) != 1:
            raise SystemExit(f"known.yaml: {name}: found {len(places)} times in {each['path']}")
        before = lines[places[0]]
        indent = before[: len(before) - len(before.lstrip())]
        after = "\n".join(indent + line for line in each["after"].splitlines())
        found.append(Fault(name, each["path"], places[0] + 1, "known", before, after))
    return found
