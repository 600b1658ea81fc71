"""New logs on both backends, for tests that must pass on each."""

import pytest

from spark_cas import open_log
from tests.kafka.clients import create_topic

KAFKA = pytest.param("kafka", marks=pytest.mark.kafka)
EMBEDDED_AND_KAFKA = ["embedded", KAFKA]
"""Parameters of a fixture that calls `new_log`: one for each backend."""


def new_log(request, path, partitions):
    """Create a log on the backend in the fixture's parameter. Return its address, which is ``path`` if embedded."""
    if request.param == "embedded":
        with open_log(path) as log:
            log.create(partitions)
        return path
    broker = request.getfixturevalue("broker")
    return f"kafka://{broker.bootstrap}/{create_topic(broker.bootstrap, partitions)}"
