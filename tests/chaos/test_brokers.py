"""The clients that broker faults affect."""

import struct

import pytest

from tests.chaos.brokers import Outdated
from tests.chaos.kv.keys import NODES
from tests.chaos.spark.judging import STREAMER
from tests.chaos.world import OTHER_ATTEMPTS, READERS, WRITERS
from tests.kafka.proxy.frames import Api, parse_request


def asked_by(client, topic="flights"):
    named = client.encode()
    body = struct.pack(">hhih", Api.LIST_OFFSETS, 7, 1, len(named)) + named + topic.encode()
    return parse_request(struct.pack(">i", len(body)) + body)


@pytest.mark.parametrize("client", [*WRITERS, *OTHER_ATTEMPTS, *NODES, "loader", STREAMER])
def test_appending_clients_may_get_outdated_responses(client):
    outdated = Outdated([], "flights")
    assert outdated.concerns(asked_by(client))
    assert not outdated.concerns(asked_by(client, "flights.spark-cas"))


@pytest.mark.parametrize("client", [*READERS, "broker-1-fetcher-0"])
def test_readers_and_brokers_get_current_responses(client):
    assert not Outdated([], "flights").concerns(asked_by(client))
