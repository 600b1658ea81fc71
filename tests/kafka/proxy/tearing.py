"""A torn transaction: a late commit ends the transaction after the one that it was sent for.

A client sends the commit of transaction 1, and the request is delayed. The client times out, sends the commit again
on another connection, and succeeds. It begins transaction 2, and has produced half of it when the delayed request
arrives. The coordinator commits the transaction that is open now: half of transaction 2 becomes visible, and no abort
can undo that. Only a new producer instance has another epoch, so that the coordinator rejects the late request.
"""

import struct
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Producer

from tests.kafka.clients import SECONDS, committed_values
from tests.kafka.proxy.frames import Api, end_txn_error_at
from tests.kafka.proxy.producers import send, transactional_producer
from tests.kafka.proxy.rig import Proxied
from tests.kafka.proxy.rules import Fault, Rule, Where, anywhere, of_client
from tests.kafka.proxy.server import Proxy

FIRST = ("a", "b")
HALF, OTHER_HALF = ("x", "y"), ("z",)


def tear(
    proxy: Proxy,
    first: Callable[[], object],
    second: Callable[[], object],
    *,
    middle: int = Api.PRODUCE,
    nth: int = 2,
    where: Where = anywhere,
) -> int:
    """Deliver the commit of ``first`` in the middle of ``second``, and return the error code in its response.

    Both are complete transactions. ``first`` must handle a commit without a response, by a retry or by a check of the
    outcome. It takes its client's request timeout. The middle of ``second`` is its ``nth`` request of the API
    ``middle``, which the proxy holds until the late commit has a response. By default, the records of the first
    Produce request are in the open transaction by then, and the other records are not. So ``second`` needs two
    requests, and deadlines of its own. ``where`` selects the requests of the writer.
    """
    late = proxy.add(Fault.HOLD_REQUEST, Api.END_TXN, where=where)
    first()
    late.reached.wait(0)
    half = proxy.add(Fault.HOLD_REQUEST, middle, nth=nth, where=where)
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(second)
        try:
            _wait(half, running)
            late.release()
            late.answered.wait(SECONDS)
        finally:
            half.release()
        running.result(SECONDS)
    return _end_txn_error(late)


@dataclass(frozen=True)
class Torn:
    """The results of two transactions, of which the client committed the first and aborted the second."""

    late_error: int
    """The error code in the response to the late commit, 0 if the coordinator executed it."""
    abort_error: KafkaError | None
    """The error of the abort of the second transaction, None if it succeeded."""
    visible: list[str]
    """The values that readers of committed records see at the end."""


def tear_producers(proxied: Proxied, topic: str, next_producer: Callable[[Producer], Producer]) -> Torn:
    """Run `tear` with plain producers.

    ``next_producer`` gets the instance that committed the first transaction, and returns the one for the second.
    """
    transactional_id = f"{topic}-0"
    used = transactional_producer(proxied.bootstrap, transactional_id)
    abort_errors: list[KafkaError] = []

    def first() -> None:
        used.begin_transaction()
        assert send(used, topic, FIRST) == [None] * len(FIRST)
        used.commit_transaction(SECONDS)

    def second() -> None:
        producer = next_producer(used)
        producer.begin_transaction()
        assert send(producer, topic, HALF) == [None] * len(HALF)
        try:
            send(producer, topic, OTHER_HALF)
            producer.abort_transaction(SECONDS)
        except KafkaException as error:
            abort_errors.append(error.args[0])

    late_error = tear(proxied.proxy, first, second, where=of_client(transactional_id))
    abort_error = abort_errors[0] if abort_errors else None
    return Torn(late_error, abort_error, committed_values(proxied.direct, topic))


def _wait(rule: Rule, running: Future[object]) -> None:
    """Wait until the rule is met. If the transaction has failed instead, raise its error."""
    try:
        rule.reached.wait(SECONDS)
    except TimeoutError:
        if running.done():
            running.result()
        raise


def _end_txn_error(rule: Rule) -> int:
    assert rule.request is not None
    assert rule.response is not None
    return int(struct.unpack_from(">h", rule.response, end_txn_error_at(rule.request.version))[0])
