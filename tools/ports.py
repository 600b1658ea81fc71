"""Reserve ports for servers that need a port number in advance."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

HOST = "127.0.0.1"


@contextmanager
def held_ports(count: int, first: int | None = None) -> Iterator[list[int]]:
    """Reserve free ports of 127.0.0.1 while the context is active.

    The system does not assign these ports to other servers or connections. Servers that set SO_REUSEADDR, as brokers
    do, can listen on them, stop, and listen again. The system releases the ports when this process ends.

    Args:
        count: the number of ports
        first: the preferred number of the first port, which is used if it is free

    Yields:
        the ports
    """
    with ExitStack() as held:
        holders = [held.enter_context(socket.socket()) for _ in range(count)]
        for number, each in enumerate(holders):
            _bind(each, first if number == 0 else None)
            # Set the option after bind, so that the system assigns an unused port. From then on, servers with this
            # option can listen
            # on it. Two processes that start brokers at the same time therefore do not get the same port.
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        yield [each.getsockname()[1] for each in holders]


def _bind(holder: socket.socket, preferred: int | None) -> None:
    if preferred is not None:
        with suppress(OSError):
            holder.bind((HOST, preferred))
            return
    holder.bind((HOST, 0))
