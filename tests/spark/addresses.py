"""New logs on both backends, for tests that must pass on each."""

import pytest

from spark_cas import open_log
from tests.kafka.clients import create_topic
from tests.long import full

KAFKA = pytest.param("kafka", marks=pytest.mark.kafka)
EMBEDDED_AND_KAFKA = ["embedded", KAFKA]
"""Parameters of a fixture that calls `new_log`: one for each backend."""
EMBEDDED = ["embedded", *full("kafka", also=pytest.mark.kafka)]
"""`make test` uses a directory, and `make test-full` also Kafka."""
ON_KAFKA = [KAFKA, *full("embedded")]
"""`make test` uses Kafka, and `make test-full` also a directory."""


def new_log(request, path, partitions):
    """Create a log on the backend in the fixture's parameter. Return its address, which is ``path`` if embedded."""
    if request.param == "embedded":
        with open_log(path) as log:
            log.create(partitions)
        return path
    broker = request.getfixturevalue("broker")
    return f"kafka://{broker.bootstrap}/{create_topic(broker.bootstrap, partitions)}"
