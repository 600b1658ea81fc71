"""Partitions of several topics, and their JSON in options: ``{"flights": {"0": 23, "1": -1}}``."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

_PARTITION = re.compile(r"0|[1-9][0-9]{0,8}")


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition of one of the logs that a read selects."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"partition {self.partition} of topic {self.topic}"


Numbers = tuple[tuple[TopicPartition, int], ...]
"""A number for each of several partitions, sorted."""


def parse_numbers(text: str, least: int) -> Numbers:
    """Parse a number of at least ``least`` for each partition of each topic. Raises ValueError without a message."""
    result: dict[TopicPartition, int] = {}
    for topic, numbers in _object(text):
        for partition, number in _pairs(numbers):
            if type(number) is not int or not least <= number < 2**63 or _PARTITION.fullmatch(partition) is None:
                raise ValueError
            at = TopicPartition(topic, int(partition))
            if at in result:
                raise ValueError
            result[at] = number
    if not result:
        raise ValueError
    return tuple(sorted(result.items()))


def parse_assigned(text: str) -> tuple[TopicPartition, ...]:
    """Parse ``{"flights": [0, 1]}``; raise ValueError with the expected form."""
    expected = 'JSON that names topics and their partitions, each once, such as {"flights": [0, 1]}'
    try:
        named = [(topic, each) for topic, partitions in _object(text) for each in _array(partitions)]
    except ValueError:
        raise ValueError(expected) from None
    if not named or len(set(named)) < len(named):
        raise ValueError(expected)
    return tuple(sorted(TopicPartition(*each) for each in named))


def listing(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions as text: topic flights (0 to 3), topic delays (0, 2)."""
    by_topic = groupby(sorted(partitions), key=lambda at: at.topic)
    return ", ".join(f"topic {topic} ({_numbers([at.partition for at in group])})" for topic, group in by_topic)


def _numbers(partitions: list[int]) -> str:
    if len(partitions) > 1 and partitions == [*range(partitions[0], partitions[-1] + 1)]:
        return f"{partitions[0]} to {partitions[-1]}"
    return ", ".join(map(str, partitions))


def _object(text: str) -> tuple[tuple[str, object], ...]:
    """Return the members of a non-empty JSON object, with nested objects as pairs to keep duplicate keys."""
    try:
        read = json.loads(text, object_pairs_hook=tuple)
    except RecursionError:
        raise ValueError from None
    result = _pairs(read)
    if not result:
        raise ValueError
    return result


def _array(read: object) -> list[int]:
    if not isinstance(read, list) or not all(type(each) is int and 0 <= each < 2**31 for each in read):
        raise ValueError
    return read


def _pairs(read: object) -> tuple[tuple[str, object], ...]:
    if not isinstance(read, tuple):
        raise ValueError  # noqa: TRY004 - the caller replaces it with the expected form
    return read
