"""The ACLs that option commitGroup needs: a commit works with exactly these, and its error names a missing one."""

import time

import pytest

from spark_cas.core.errors import AccessDeniedError
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.client.client_errors import Right, on_topic
from tests.kafka.clients import create_topic

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

SECONDS = 5.0


@pytest.mark.parametrize("missing", ["", "topic", "group"])
def test_rights_of_a_commit(secured, missing):
    spec = secured.spec(create_topic(secured.open))
    rights = {"topic": on_topic("Read", spec.topic), "group": Right("Read", "group", "lag")}
    secured.allow(right for kind, right in rights.items() if kind != missing)
    began = time.monotonic()
    with KafkaLog(spec) as log:
        if not missing:
            log.commit_to_group("lag", {0: 0}, SECONDS)
            return
        with pytest.raises(AccessDeniedError) as refused:
            log.commit_to_group("lag", {0: 0}, SECONDS)
    assert time.monotonic() - began < 30, "the client would wait 45 s for a group that it may not read"
    assert rights[missing].options in str(refused.value)
