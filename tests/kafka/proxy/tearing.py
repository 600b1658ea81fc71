"""The torn transaction: a commit that arrives late, and ends the transaction after the one it was sent for.

A client asks to commit transaction 1. The request is delayed; the client gives up waiting, asks again on another
connection, and the commit succeeds. The client begins transaction 2 and has produced half of it when the delayed
request arrives. To the coordinator it is a commit of what is open now: half of transaction 2 becomes visible, and no
abort takes it back. Only a new instance, which has another epoch, has the late request refused.
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
    """Deliver the commit of ``first`` in the middle of ``second``, and return the error code that answered it.

    Both are whole transactions. ``first`` must get over a commit that is not answered, by trying again or by looking
    what became of it; it takes its client's request timeout. The middle of ``second`` is its ``nth`` request
    ``middle``, held back until the late commit was answered. By default what the first Produce request carried is in
    the open transaction by then, and the rest is not: ``second`` needs two requests, and deadlines of its own.
    ``where`` tells the writer from others.
    """
    late = proxy.add(Fault.HOLD_REQUEST, Api.END_TXN, where=where)
    first()
    late.met.wait(0)
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
    """What became of two transactions, of which the first was committed and the second aborted."""

    late_error: int
    """How the coordinator answered the late commit: 0 when it obeyed."""
    abort_error: KafkaError | None
    """Why the client could not abort the second."""
    visible: list[str]
    """What readers of committed records see in the end."""


def tear_producers(proxied: Proxied, topic: str, next_producer: Callable[[Producer], Producer]) -> Torn:
    """`tear` with the bare client. ``next_producer`` gets the instance that committed the first transaction, and
    returns the one for the second.
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
    """Wait until the rule is met; when the transaction ended before it came so far, its own error tells more."""
    try:
        rule.met.wait(SECONDS)
    except TimeoutError:
        if running.done():
            running.result()
        raise


def _end_txn_error(rule: Rule) -> int:
    assert rule.request is not None
    assert rule.response is not None
    return int(struct.unpack_from(">h", rule.response, end_txn_error_at(rule.request.version))[0])
