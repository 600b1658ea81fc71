"""New logs on each of the two backends, for tests that are to hold on both."""

import pytest

from spark_cas import open_log
from tests.kafka.clients import create_topic

KAFKA = pytest.param("kafka", marks=pytest.mark.kafka)
EMBEDDED_AND_KAFKA = ["embedded", KAFKA]
"""Values of a parameter of a fixture, for `new_log`."""


def new_log(request, path, partitions):
    """The address of a new log on the backend that is the fixture's parameter; ``path`` is for the embedded one."""
    if request.param == "embedded":
        with open_log(path) as log:
            log.create(partitions)
        return path
    broker = request.getfixturevalue("broker")
    return f"kafka://{broker.bootstrap}/{create_topic(broker.bootstrap, partitions)}"
