"""The schedule of faults, drawn from a seed before the run, so that a seed names a schedule."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

STORM_SECONDS = 7.0
QUIET_SECONDS = 3.0
_FEWEST_KINDS, _MOST_KINDS = 2, 4


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault of a type from ``begin`` to ``end``, in seconds since the run began; ``seed`` chooses its target."""

    begin: float
    end: float
    kind: str
    seed: int


def schedule(seed: int, seconds: float, kinds: Sequence[str]) -> list[Planned]:
    """Return storms of faults with quiet windows between them, sorted by begin.

    A storm repeats some of the types. Each type occurs once before any occurs in a second storm. The same arguments
    give the same schedule, but not the same interleaving of threads and processes.
    """
    chance = random.Random(f"schedule {seed}")
    planned: list[Planned] = []
    deck: list[str] = []
    at = 1.0
    while at < seconds - 1:
        end = min(at + STORM_SECONDS, seconds)
        for kind in _dealt(chance, deck, kinds):
            planned += _again_and_again(chance, kind, at, end)
        at = end + QUIET_SECONDS
    return sorted(planned, key=lambda each: (each.begin, each.kind))


def _dealt(chance: random.Random, deck: list[str], kinds: Sequence[str]) -> list[str]:
    """Draw some types from a shuffled deck.

    If the deck is too small, the remaining types are shuffled and added below it.
    """
    count = min(len(kinds), chance.randint(_FEWEST_KINDS, _MOST_KINDS))
    if len(deck) < count:
        deck += [each for each in chance.sample(list(kinds), len(kinds)) if each not in deck]
    dealt, deck[:count] = deck[:count], []
    return dealt


def _again_and_again(chance: random.Random, kind: str, at: float, end: float) -> list[Planned]:
    planned = []
    begin = at + chance.uniform(0, 1.5)
    while begin < end:
        length = chance.uniform(0.3, 4)
        planned.append(Planned(begin, min(begin + length, end), kind, chance.getrandbits(32)))
        begin += length + chance.uniform(0.2, 2.5)
    return planned
