"""A process that leaves a client in a cycle, and collects it in the client's own thread.

Argument: a key of `MADE`. The process prints ``alive`` after that thread has requested another token. librdkafka
aborts the process if the thread destroys its own client.
"""

import gc
import sys
import time
from threading import Event
from types import SimpleNamespace

from spark_cas.log.kafka.accelerators import librdkafka
from spark_cas.log.kafka.client import clients, tokens
from spark_cas.log.kafka.settings.address import kafka_spec

MADE = {
    "admin": clients.admin_client,
    "reader": lambda spec: clients.reader(spec, scanning=False),
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
    """Request a token, and then collect garbage as if this thread had allocated memory."""
    result = request(self, config)
    if left.is_set():
        gc.collect()
        collected.set()
    return result


def leave(make, spec):
    """Create a client that only a cycle refers to."""
    holder = SimpleNamespace(client=make(spec))
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
