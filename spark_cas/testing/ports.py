"""Ports for servers that are told theirs, each held for one of them."""

import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

HOST = "127.0.0.1"

# Below the ports that systems give to outgoing connections (Linux from 32768, others from 49152): a port found free
# is then not taken by chance before the broker has it, or while the broker is down.
_PORTS = range(20_000, 32_000)
_TRIES = 200


@contextmanager
def held_ports(count: int) -> Iterator[list[int]]:
    """Ports of 127.0.0.1 that nobody listens on, and that nobody else is given here while they are held.

    Servers that set SO_REUSEADDR, as brokers do, listen on them meanwhile, end, and listen again. A process that
    is killed holds them no longer.
    """
    with ExitStack() as held:
        ports: list[int] = []
        for _ in range(_TRIES):
            if len(ports) == count:
                yield ports
                return
            holder = held.enter_context(socket.socket())
            port = random.choice(_PORTS)  # noqa: S311 - chance, not secrecy
            if _holds(holder, port):
                ports.append(port)
        raise OSError(f"no {count} free ports found on {HOST}")


def _holds(holder: socket.socket, port: int) -> bool:
    try:
        # Refused while anybody is bound to it, listening or not: so do two processes, each of which starts brokers
        # for some seconds before they listen, not come to the same port.
        holder.bind((HOST, port))
    except OSError:
        return False
    # From now on beside those who set it too, as long as one alone listens.
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return True
