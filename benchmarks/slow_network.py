"""A relay to a broker that adds latency as a network does: data in transit does not delay later data.

``python -m benchmarks.slow_network <port> <host:port> <milliseconds>`` runs it, in a process apart from the measured
ones.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tools.ports import HOST

_BYTES = 1 << 18
_READY = "ready\n"

_Due = tuple[float, bytes]


@contextmanager
def slow_network(port: int, upstream: str, round_trip_ms: float) -> Iterator[str]:
    """Relay ``port`` to ``upstream`` within the context, and add ``round_trip_ms`` to each round trip."""
    command = [sys.executable, "-m", "benchmarks.slow_network", str(port), upstream, str(round_trip_ms)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as relay:
        try:
            if relay.stdout is None or relay.stdout.readline() != _READY:
                raise RuntimeError("the relay did not start")
            yield f"{HOST}:{port}"
        finally:
            relay.terminate()


async def _serve(port: int, upstream: str, one_way_seconds: float) -> None:
    host, _, upstream_port = upstream.rpartition(":")

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            there = await asyncio.open_connection(host, int(upstream_port))
            await asyncio.gather(
                _delayed(reader, there[1], one_way_seconds), _delayed(there[0], writer, one_way_seconds)
            )

    server = await asyncio.start_server(carry, HOST, port, limit=_BYTES)
    sys.stdout.write(_READY)
    sys.stdout.flush()
    await server.serve_forever()


async def _delayed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float) -> None:
    """Forward bytes ``seconds`` after their arrival, until the stream ends."""
    waiting: asyncio.Queue[_Due] = asyncio.Queue()

    async def hand_over() -> None:
        while data := (await _next_due(waiting))[1]:
            writer.write(data)
            await writer.drain()
        writer.close()

    handing = asyncio.get_running_loop().create_task(hand_over())
    data = b"-"
    while data:
        try:
            data = await reader.read(_BYTES)
        except OSError:
            data = b""
        waiting.put_nowait((asyncio.get_running_loop().time() + seconds, data))
    await handing


async def _next_due(waiting: asyncio.Queue[_Due]) -> _Due:
    due = await waiting.get()
    await asyncio.sleep(due[0] - asyncio.get_running_loop().time())
    return due


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]) / 2000))
