"""Ports for servers that are told theirs, each held for one of them."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

HOST = "127.0.0.1"


@contextmanager
def held_ports(count: int) -> Iterator[list[int]]:
    """Ports of 127.0.0.1 that nobody else of the machine is given while they are held: no server, no connection.

    Servers that set SO_REUSEADDR, as brokers do, listen on them meanwhile, end, and listen again. A process that
    is killed holds them no longer.
    """
    with ExitStack() as held:
        holders = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in holders:
            each.bind((HOST, 0))
            # Once it is bound, so that it got what nobody had: from now on beside those who set it too, one of whom
            # may listen. Two processes that each start brokers for seconds do not come to the same port so.
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        yield [each.getsockname()[1] for each in holders]
