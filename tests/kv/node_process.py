"""A node in a separate process. It executes one command per input line and prints the result.

Arguments: the address of the log, the folder, and the node's address. Commands: ``lead SHARD``, ``get KEY``, ``put
KEY VALUE``, and ``flood PREFIX COUNT``. The last one writes ``PREFIX-0`` and so on, with many writes in flight, and
prints each acknowledged key. The output of a command ends with ``done``.
"""

import sys
from collections import deque
from collections.abc import Iterator
from itertools import islice

from key_value_store import Node
from spark_cas.core.errors import ConditionalLogError

_UNDER_WAY = 50
_SECONDS = 60


def say(line: str) -> None:
    """Print a line for the test."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def flood(node: Node, prefix: str, count: int) -> Iterator[str]:
    """Write, and yield each acknowledged key."""
    keys = (f"{prefix}-{number}" for number in range(count))
    under_way = deque((key, node.submit({key.encode(): key.encode()})) for key in islice(keys, _UNDER_WAY))
    while under_way:
        key, future = under_way.popleft()
        future.result(_SECONDS)
        yield key
        under_way.extend((key, node.submit({key.encode(): key.encode()})) for key in islice(keys, 1))


def answers(node: Node, words: list[str]) -> Iterator[str]:
    """Yield the result of a command."""
    match words:
        case ["lead", shard]:
            node.lead(int(shard))
        case ["get", key]:
            yield str((node.get(key.encode()).value or b"").decode())
        case ["put", key, value]:
            yield str(node.put(key.encode(), value.encode()))
        case ["flood", prefix, count]:
            yield from flood(node, prefix, int(count))


def main() -> None:
    log, folder, address = sys.argv[1:]
    with Node(log, address=address, folder=folder) as node:
        say("ready")
        for line in sys.stdin:
            try:
                for answer in answers(node, line.split()):
                    say(answer)
            except ConditionalLogError as error:
                say(f"{error.kind} {getattr(error, 'leader', None)}")
            say("done")


if __name__ == "__main__":
    main()
