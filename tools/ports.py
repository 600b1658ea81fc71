"""Reserve ports for servers that need a port number in advance."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

HOST = "127.0.0.1"


@contextmanager
def held_ports(count: int) -> Iterator[list[int]]:
    """Reserve free ports of 127.0.0.1 while the context is active.

    The system does not assign these ports to other servers or connections. Servers that set SO_REUSEADDR, as brokers
    do, can listen on them, stop, and listen again. The system releases the ports when this process ends.

    Args:
        count: the number of ports

    Yields:
        the ports
    """
    with ExitStack() as held:
        holders = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in holders:
            each.bind((HOST, 0))
            # Set the option after bind, so that the system assigns an unused port. From then on, servers with this
            # option can listen
            # on it. Two processes that start brokers at the same time therefore do not get the same port.
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        yield [each.getsockname()[1] for each in holders]
