"""A writer in a process of its own, which says when it is about to commit its second chunk, and what came of that.

Arguments: bootstrap servers, topic, transaction timeout in milliseconds.
"""

import sys
from dataclasses import replace

from spark_cas.log.kafka import KafkaLog, clients
from spark_cas.log.kafka.clients import TransactionalProducer
from spark_cas.testing.writing import table_of
from tests.kafka.faulted import planned_writer, spec_of

_commit = TransactionalProducer.commit


def say(line: str) -> None:
    """Tell the test."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def commit_after_a_word(producer: TransactionalProducer, timeout_seconds: float) -> None:
    """The test stops the process at the word, and looks before it goes on."""
    say("about to commit")
    sys.stdin.readline()
    _commit(producer, timeout_seconds)


def main() -> None:
    """Append."""
    servers, topic, timeout_ms = sys.argv[1:]
    clients.REQUEST_SECONDS = 1.0  # type: ignore[attr-defined] # no request may outlast the transaction
    spec = replace(spec_of(servers, topic), transaction_timeout_ms=int(timeout_ms))
    with KafkaLog(spec) as log:
        job = planned_writer(log)
        job.must_append(*"ab")
        TransactionalProducer.commit = commit_after_a_word  # type: ignore[method-assign, assignment]
        say(type(job.append(table_of("xyz"))).__name__)


if __name__ == "__main__":
    main()
