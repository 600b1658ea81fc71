"""A client's connection, and the connection to the broker that carries its frames."""

import asyncio
import socket
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from tests.kafka.proxy.frames import (
    Api,
    Request,
    correlation_id_of,
    empty_metadata,
    fail_end_txn,
    fail_produce,
    parse_request,
    read_frame,
)
from tests.kafka.proxy.rules import DELAY_SECONDS, Fault, Rule

_FAILED = {Api.PRODUCE: fail_produce, Api.END_TXN: fail_end_txn}
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass
class Traffic:
    """Frames by API: the requests of clients and the responses of the broker, including those that a rule drops."""

    requests: Counter[int] = field(default_factory=Counter)
    responses: Counter[int] = field(default_factory=Counter)
    response_bytes: Counter[int] = field(default_factory=Counter)

    def clear(self) -> None:
        self.requests.clear()
        self.responses.clear()
        self.response_bytes.clear()


@dataclass(frozen=True)
class Stream:
    """Both directions of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, frame: bytes) -> None:
        self.writer.write(frame)
        await self.writer.drain()

    def reset(self) -> None:
        """Reset the connection, so that the other side gets an error instead of an orderly end."""
        connection = self.writer.get_extra_info("socket")
        if connection.fileno() >= 0:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.writer.transport.abort()


@dataclass
class _Exchange:
    """A request and the rules that apply to it."""

    request: Request
    rules: list[Rule]
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    def suffers(self, *faults: Fault) -> bool:
        return any(rule.fault in faults for rule in self.rules)

    def as_told(self, response: bytes, connection: object) -> bytes:
        """Return the response that the client gets."""
        for rule in self.rules:
            if rule.fault is Fault.FAIL_RESPONSE:
                return _FAILED[Api(self.request.api)](response, self.request.version, rule.error)
            if rule.fault is Fault.EMPTY_METADATA:
                return empty_metadata(response, self.request.version)
            if rule.fault is Fault.OLD_RESPONSE:
                response = rule.as_of_then(connection, self.request, response)
        return response


class Link:
    """A pair of connections that carries frames both ways, in order, and applies the rules.

    ``client_id`` is set by the client's first request.
    """

    def __init__(self, client: Stream, broker: Stream, rules: Callable[[], Sequence[Rule]], traffic: Traffic) -> None:
        self._client = client
        self._broker = broker
        self._rules = rules
        self._traffic = traffic
        self.client_id = ""
        self._number = 0
        self._unanswered: dict[int, _Exchange] = {}

    async def run(self) -> None:
        """Carry frames until both sides have ended, then reset both connections. Errors of connections end it too."""
        try:
            async with asyncio.TaskGroup() as directions:
                directions.create_task(self._carry_requests())
                directions.create_task(self._carry_responses())
        except* ConnectionError:
            pass  # from a rule or a killed broker: the client gets the reset below
        finally:
            self._client.reset()
            self._broker.reset()

    async def _carry_requests(self) -> None:
        held: list[_Exchange] = []
        while (frame := await read_frame(self._client.reader)) is not None:
            exchange = self._begin(parse_request(frame))
            if exchange.suffers(Fault.RESET_BEFORE_REQUEST):
                raise ConnectionResetError
            if exchange.suffers(Fault.HOLD_REQUEST):
                held.append(exchange)
                await _hold(exchange, Fault.HOLD_REQUEST)
            if exchange.suffers(Fault.DELAY_REQUEST):
                await asyncio.sleep(DELAY_SECONDS)
            self._unanswered[exchange.request.correlation_id] = exchange
            if not exchange.suffers(Fault.DROP_REQUEST):
                await self._broker.send(frame)
        # The client has disconnected. Brokers drop the requests of a closed connection, so wait until the late ones
        # are handled.
        for exchange in held:
            await exchange.answered.wait()
        try:
            self._broker.writer.write_eof()
        except OSError as error:
            # A broker killed at this moment is not connected: ENOTCONN, which is no ConnectionError.
            raise ConnectionResetError from error

    async def _carry_responses(self) -> None:
        while (frame := await read_frame(self._broker.reader)) is not None:
            correlation_id = correlation_id_of(frame)
            exchange = self._unanswered[correlation_id]
            self._traffic.responses[exchange.request.api] += 1
            self._traffic.response_bytes[exchange.request.api] += len(frame)
            for rule in exchange.rules:
                rule.was_answered(frame)
            exchange.answered.set()
            if exchange.suffers(Fault.RESET_BEFORE_RESPONSE):
                raise ConnectionResetError
            await _hold(exchange, Fault.HOLD_RESPONSE)
            del self._unanswered[correlation_id]
            if not exchange.suffers(Fault.DROP_RESPONSE):
                await self._respond(exchange.as_told(frame, self))
        raise ConnectionResetError

    def _begin(self, request: Request) -> _Exchange:
        self._number += 1
        self.client_id = request.client_id
        self._traffic.requests[request.api] += 1
        exchange = _Exchange(request, [rule for rule in self._rules() if rule.takes(request, self._number)])
        for rule in exchange.rules:
            rule.saw_at_once(1 + sum(rule in other.rules for other in self._unanswered.values()))
        return exchange

    async def _respond(self, frame: bytes) -> None:
        with suppress(ConnectionError):  # the client has disconnected, but its requests may still be in flight
            await self._client.send(frame)


async def _hold(exchange: _Exchange, fault: Fault) -> None:
    for rule in exchange.rules:
        if rule.fault is fault:
            await rule.hold()
