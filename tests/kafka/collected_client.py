"""A process that leaves a client to the garbage collector, which runs in the client's own thread.

Argument: a key of `MADE`. The process prints ``alive`` after that thread has requested another token, or has returned
an answer. librdkafka aborts the process if the thread destroys its own client.
"""

import gc
import sys
import time
from threading import Event
from types import SimpleNamespace

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from spark_cas.log.kafka.accelerators import librdkafka
from spark_cas.log.kafka.client import clients, tokens
from spark_cas.log.kafka.settings.address import kafka_spec

MADE = {
    "admin": clients.admin_client,
    "answer": lambda _: asking(clients.admin_client(kafka_spec("127.0.0.1:1", "topic", {}))),
    "reader": lambda spec: clients.reader(spec, scanning=False),
    "suspended read": lambda spec: opened(clients.reader(spec, scanning=False)),
    "member": lambda spec: clients.group_member(spec, "group", print),
    "producer": lambda spec: clients.TransactionalProducer(spec, "id"),
    "object producer": lambda spec: clients.TransactionalProducer(spec, "id"),
}
LIFETIME_SECONDS = 2
"""The client requests another token after 80% of this time."""

left, collected = Event(), Event()
request = tokens.Tokens.__call__


def token():
    """Return a token and its expiry time."""
    return "token", time.time() + LIFETIME_SECONDS


def collecting(self, config):
    """Request a token, and then collect garbage."""
    result = request(self, config)
    collect()
    return result


class Slow:
    """An object whose finalizer lets other threads run, while the collection that destroys it is still running."""

    def __del__(self):
        time.sleep(0.5)


def asking(admin):
    """Send a request of which the client returns the failure in its own thread."""
    offsets = {TopicPartition("topic", 0): OffsetSpec.latest()}
    for answer in admin.client.list_offsets(offsets, request_timeout=LIFETIME_SECONDS).values():
        answer.add_done_callback(collect)
    return admin


def collect(_answer=None):
    """Collect garbage as if this thread had allocated memory."""
    if left.is_set():
        gc.collect()
        collected.set()


def suspended(consumer):
    """Close a consumer at the end of a read that never ends."""
    try:
        yield consumer
    finally:
        consumer.close()


def opened(consumer):
    """Return an open read."""
    read = suspended(consumer)
    next(read)
    return read


def leave(make, spec):
    """Create a client that only a cycle refers to. The collection runs another finalizer after that of the client."""
    holder = SimpleNamespace(client=make(spec), later=Slow())
    holder.itself = holder


def main():
    """Leave the client, and wait until it was collected."""
    name = sys.argv[1]
    gc.disable()
    setattr(tokens.Tokens, "__call__", collecting)  # noqa: B010 - mypy allows no assignment
    if name == "object producer":
        setattr(librdkafka, "library", lambda: None)  # noqa: B010 - as above
    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    leave(MADE[name], kafka_spec("127.0.0.1:1", "topic", settings, token_provider=f"{__spec__.name}:token"))
    left.set()
    assert collected.wait(10 * LIFETIME_SECONDS)
    time.sleep(0.5)
    sys.stdout.write("alive\n")


if __name__ == "__main__":
    main()
