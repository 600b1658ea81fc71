"""Clients that another thread destroys if Python collects them in their own thread.

A thread of librdkafka runs Python code when it requests a token, and an admin client's thread when it has an answer.
Python may collect the client there. librdkafka (2.16) aborts the process if that thread destroys its own client.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from spark_cas.log.finalizing import finalizers, is_in_use


class CollectedElsewhere:
    """A base of confluent-kafka's clients. A client whose threads run Python code is destroyed by `finalizers`.

    No callback of such a client may refer to the client, directly or not. Otherwise it is never destroyed.
    """

    runs_python = False
    """Whether the client's threads always run Python code. With tokens, those of each client do."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._finalizers = finalizers() if self.runs_python or "oauth_cb" in settings else None
        super().__init__(settings)  # type: ignore[call-arg] # that of the client

    def __del__(self) -> None:
        # Without the attribute, the client was not created.
        if (queue := getattr(self, "_finalizers", None)) is not None:
            queue.put(partial(is_in_use, [self]))


class SafeAdminClient(CollectedElsewhere, AdminClient):
    """confluent-kafka's admin client."""

    runs_python = True


class SafeConsumer(CollectedElsewhere, Consumer):
    """confluent-kafka's consumer."""

    def close(self) -> None:
        """Close the consumer; with tokens, later and in another thread.

        Python may collect a suspended generator in any thread, and the generator then calls this.
        """
        if self._finalizers is None:
            super().close()
        else:
            self._finalizers.put(super().close)
