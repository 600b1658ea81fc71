"""The proxy itself: it forwards all frames, injects the faults of its rules, and leaves nothing open."""

import asyncio
import errno
import socket
import struct
import threading
import time
from contextlib import ExitStack

import pytest
from confluent_kafka import KafkaError

from tests.kafka.clients import SECONDS, append, committed_values
from tests.kafka.proxy.frames import Api
from tests.kafka.proxy.producers import REQUEST_TIMEOUT_MS, plain_producer, send, transactional_producer
from tests.kafka.proxy.rules import Fault, naming, of_client
from tests.kafka.proxy.server import Proxy
from tests.kafka.proxy.tearing import FIRST, HALF, OTHER_HALF, tear_producers
from tools.kafka_broker.waiting import wait_until
from tools.ports import HOST, held_ports

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

API_VERSIONS = 18
PATIENT_MS = 60_000
"""A request timeout that exceeds every test, so that anything that ends sooner has another cause."""


def once(address, name="p", **settings):
    """Return a producer without idempotence. The broker stores twice the values that it sends twice."""
    return plain_producer(address, name, enable_idempotence=False, **settings)


def values_of(proxied, topic):
    return committed_values(proxied.direct, topic)


def connected(address):
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), SECONDS)


def ask(client, correlation_id):
    """Send the shortest request, which consists of a header without a client id."""
    client.sendall(struct.pack(">ihhih", 10, API_VERSIONS, 0, correlation_id, -1))


def answer(client):
    frame = b""
    while len(frame) < 4 or len(frame) < 4 + struct.unpack_from(">i", frame)[0]:
        more = client.recv(65536)
        assert more, "the connection ended"
        frame += more
    return frame


# Forwarding


def test_clients_work_through_the_proxy(proxied, proxied_topic):
    large = "v" * 900_000
    append(proxied.bootstrap, proxied_topic, "a", large)
    append(proxied.bootstrap, proxied_topic, "x", commit=False)
    append(proxied.bootstrap, proxied_topic, "b")
    assert committed_values(proxied.bootstrap, proxied_topic) == ["a", large, "b"]
    assert values_of(proxied, proxied_topic) == ["a", large, "b"]


def test_bytes_pass_as_they_are(proxied):
    answers = []
    for address in (proxied.direct, proxied.bootstrap):
        with connected(address) as client:
            ask(client, 7)
            answers.append(answer(client))
    assert answers[0] == answers[1]


def test_only_traffic_through_the_proxy_is_counted(proxied, proxied_topic):
    second = proxied.proxy.add(Fault.WATCH, Api.PRODUCE, nth=2, where=naming(proxied_topic))
    send(once(proxied.direct), proxied_topic, ["a"])
    send(once(proxied.bootstrap), proxied_topic, ["b"])
    assert (second.known, second.borrow) == (1, 0)
    assert not second.reached.has_come
    send(once(proxied.bootstrap), proxied_topic, ["c"])
    second.answered.wait(0)
    assert (second.known, second.borrow) == (2, 1)
    traffic = proxied.proxy.traffic
    assert (traffic.requests[Api.PRODUCE], traffic.responses[Api.PRODUCE]) == (2, 2)
    assert traffic.requests[Api.METADATA] >= 2
    append(proxied.bootstrap, proxied_topic, "d")
    for api in (Api.FIND_COORDINATOR, Api.INIT_PRODUCER_ID, Api.ADD_PARTITIONS_TO_TXN, Api.END_TXN):
        assert traffic.responses[api] >= 1, api


@pytest.mark.full
def test_restarted_broker_is_reached_again(proxied, proxied_topic):
    send(once(proxied.bootstrap), proxied_topic, ["a"])
    proxied.broker.kill()
    # On a busy machine, a broker takes half a minute to restart.
    producer = once(proxied.bootstrap, message_timeout_ms=1000 * SECONDS)
    reports = []
    producer.produce(proxied_topic, "b", partition=0, on_delivery=lambda error, _: reports.append(error))
    assert producer.flush(0.5) == 1
    proxied.broker.restart()
    assert producer.flush(SECONDS) == 0
    assert reports == [None]
    assert values_of(proxied, proxied_topic) == ["a", "b"]


# Rules


def test_a_held_request_arrives_when_it_is_released(proxied, proxied_topic):
    rule = proxied.proxy.add(Fault.HOLD_REQUEST, Api.PRODUCE, where=of_client("slow"))
    slow = once(proxied.bootstrap, "slow", socket_timeout_ms=PATIENT_MS)
    slow.produce(proxied_topic, "late", partition=0)
    rule.reached.wait(SECONDS)
    assert send(once(proxied.bootstrap, "quick"), proxied_topic, ["early"]) == [None]
    assert values_of(proxied, proxied_topic) == ["early"]
    assert not rule.answered.has_come
    rule.release()
    rule.answered.wait(SECONDS)
    assert slow.flush(SECONDS) == 0
    assert values_of(proxied, proxied_topic) == ["early", "late"]


def test_requests_after_a_held_one_wait_in_order(proxied, proxied_topic):
    rule = proxied.proxy.add(Fault.HOLD_REQUEST, Api.PRODUCE)
    producer = once(proxied.bootstrap, socket_timeout_ms=PATIENT_MS, batch_num_messages=1)
    for number in range(5):
        producer.produce(proxied_topic, str(number), partition=0)
    rule.reached.wait(SECONDS)
    assert values_of(proxied, proxied_topic) == []
    rule.release()
    assert producer.flush(SECONDS) == 0
    assert values_of(proxied, proxied_topic) == list("01234")


def test_a_held_request_arrives_even_when_its_client_has_gone(proxied, proxied_topic):
    rule = proxied.proxy.add(Fault.HOLD_REQUEST, Api.PRODUCE)
    producer = once(proxied.bootstrap, "leaves")
    producer.produce(proxied_topic, "late", partition=0)
    rule.reached.wait(SECONDS)
    producer.purge()
    del producer
    # The client's other connections close with it. The held one does not.
    wait_until(lambda: proxied.proxy.connections_of("leaves") == 1, SECONDS, lambda: "the client is still connected")
    assert values_of(proxied, proxied_topic) == []
    rule.release()
    rule.answered.wait(SECONDS)
    assert values_of(proxied, proxied_topic) == ["late"]
    wait_until(lambda: proxied.proxy.connections_of("leaves") == 0, SECONDS, lambda: "the held connection stayed")


def test_a_held_response_was_handled_before_it_is_released(proxied, proxied_topic):
    rule = proxied.proxy.add(Fault.HOLD_RESPONSE, Api.PRODUCE)
    producer = once(proxied.bootstrap, socket_timeout_ms=PATIENT_MS)
    producer.produce(proxied_topic, "a", partition=0)
    rule.answered.wait(SECONDS)
    assert values_of(proxied, proxied_topic) == ["a"]
    assert producer.flush(0.1) == 1
    rule.release()
    assert producer.flush(SECONDS) == 0
    assert values_of(proxied, proxied_topic) == ["a"]


def test_dropped_response_is_detected_only_by_a_timeout(proxied, proxied_topic):
    rule = proxied.proxy.add(Fault.DROP_RESPONSE, Api.PRODUCE)
    producer = once(proxied.bootstrap)
    start = time.monotonic()
    assert send(producer, proxied_topic, ["a"]) == [None]
    assert time.monotonic() - start >= REQUEST_TIMEOUT_MS / 1000
    assert rule.known == 2
    assert values_of(proxied, proxied_topic) == ["a", "a"]


def test_a_connection_on_which_a_response_is_dropped_stays(proxied):
    rule = proxied.proxy.add(Fault.DROP_RESPONSE, API_VERSIONS)
    with connected(proxied.bootstrap) as client:
        ask(client, 1)
        rule.answered.wait(SECONDS)
        ask(client, 2)
        assert answer(client)[4:8] == struct.pack(">i", 2)


def test_reset_instead_of_a_response_is_detected_at_once(proxied, proxied_topic):
    rule = proxied.proxy.add(Fault.RESET_BEFORE_RESPONSE, Api.PRODUCE)
    assert send(once(proxied.bootstrap, socket_timeout_ms=PATIENT_MS), proxied_topic, ["a"]) == [None]
    assert rule.known == 2
    assert rule.answered.has_come
    assert values_of(proxied, proxied_topic) == ["a", "a"]


def test_an_idempotent_producer_gets_over_a_lost_response(proxied, proxied_topic):
    rule = proxied.proxy.add(Fault.RESET_BEFORE_RESPONSE, Api.PRODUCE, times=2)
    producer = plain_producer(proxied.bootstrap, "p", enable_idempotence=True)
    assert send(producer, proxied_topic, ["a"]) == [None]
    assert (rule.known, rule.borrow) == (3, 2)
    assert values_of(proxied, proxied_topic) == ["a"]


def test_a_reset_before_the_request_keeps_it_from_the_broker(proxied, proxied_topic):
    rule = proxied.proxy.add(Fault.RESET_BEFORE_REQUEST, Api.PRODUCE)
    assert send(once(proxied.bootstrap, socket_timeout_ms=PATIENT_MS), proxied_topic, ["a"]) == [None]
    assert rule.known == 2
    assert not rule.answered.has_come
    assert values_of(proxied, proxied_topic) == ["a"]


@pytest.mark.full
def test_order_and_number_survive_resets_with_five_requests_in_flight(proxied, proxied_topic):
    watched = proxied.proxy.add(Fault.WATCH, Api.PRODUCE, times=None, where=of_client("p"))
    rule = proxied.proxy.reset_every(12, where=of_client("p"))
    producer = plain_producer(proxied.bootstrap, "p", enable_idempotence=True, max_in_flight=5, batch_num_messages=1)
    values = [str(number) for number in range(200)]
    assert send(producer, proxied_topic, values) == [None] * 200
    assert rule.borrow >= 5
    assert watched.most_at_once > 1
    assert values_of(proxied, proxied_topic) == values


@pytest.mark.parametrize(("records_each", "requests"), [(1, 5), (2, 3), (10, 1)])
def test_the_client_sends_the_next_request_only_while_fewer_than_five_records_are_unanswered(
    proxied, proxied_topic, records_each, requests
):
    """This is true of librdkafka up to 2.16 (pull request 4989). docs/performance.md relies on it."""
    full = {"batch_num_messages": records_each, "linger_ms": 100}
    producer = plain_producer(proxied.bootstrap, "p", enable_idempotence=True, max_in_flight=5, **full)
    send(producer, proxied_topic, ["first"])
    watched = proxied.proxy.add(Fault.WATCH, Api.PRODUCE, times=None, where=of_client("p"))
    held = proxied.proxy.add(Fault.HOLD_RESPONSE, Api.PRODUCE, where=of_client("p"))
    last = proxied.proxy.add(Fault.WATCH, Api.PRODUCE, nth=requests, where=of_client("p"))
    for number in range(100):
        producer.produce(proxied_topic, str(number), partition=0)
    last.reached.wait(SECONDS)
    held.release()
    assert producer.flush(SECONDS) == 0
    assert watched.most_at_once == requests


def test_rules_count_matching_requests_from_their_addition(proxied, proxied_topic):
    producer = once(proxied.bootstrap, "mine")
    send(producer, proxied_topic, ["a"])
    third = proxied.proxy.add(Fault.RESET_BEFORE_RESPONSE, Api.PRODUCE, nth=3, where=of_client("mine"))
    send(once(proxied.bootstrap, "other"), proxied_topic, ["b"])
    for value in "cd":
        send(producer, proxied_topic, [value])
    assert not third.reached.has_come
    send(producer, proxied_topic, ["e"])
    third.reached.wait(0)
    assert values_of(proxied, proxied_topic) == list("abcdee")


def test_held_request_never_arrives_after_rules_are_cleared(proxied, proxied_topic):
    rule = proxied.proxy.add(Fault.HOLD_REQUEST, Api.PRODUCE)
    producer = once(proxied.bootstrap, message_send_max_retries=0, socket_timeout_ms=PATIENT_MS)
    producer.produce(proxied_topic, "lost", partition=0)
    rule.reached.wait(SECONDS)
    proxied.proxy.clear()
    assert producer.flush(SECONDS) == 0
    assert send(producer, proxied_topic, ["next"]) == [None]
    assert values_of(proxied, proxied_topic) == ["next"]


# Late commits, see tearing.py


@pytest.mark.full
def test_a_late_commit_tears_the_next_transaction_of_the_same_instance(proxied, proxied_topic):
    torn = tear_producers(proxied, proxied_topic, lambda used: used)
    assert torn.late_error == KafkaError.NO_ERROR
    assert torn.abort_error is not None
    assert torn.abort_error.code() == KafkaError.INVALID_TXN_STATE
    # The other half is visible too if it overtakes the marker of the late commit, for which the client does not wait.
    assert torn.visible in ([*FIRST, *HALF], [*FIRST, *HALF, *OTHER_HALF])


@pytest.mark.full
def test_a_late_commit_does_not_touch_the_next_transaction_of_a_new_instance(proxied, proxied_topic):
    torn = tear_producers(
        proxied, proxied_topic, lambda _used: transactional_producer(proxied.bootstrap, f"{proxied_topic}-0")
    )
    assert torn.late_error == KafkaError.INVALID_PRODUCER_EPOCH
    assert torn.abort_error is None
    assert torn.visible == [*FIRST]


# Shutdown and errors of the proxy


def test_proxy_leaves_nothing_when_it_ends(proxied, proxied_topic):
    threads = set(threading.enumerate())
    with held_ports(1) as [port], ExitStack() as stop:
        proxy = stop.enter_context(Proxy(port, proxied.broker.proxied_address))
        held = proxy.add(Fault.HOLD_REQUEST, API_VERSIONS)
        with connected(proxy.bootstrap) as holding, connected(proxy.bootstrap) as idle:
            ask(holding, 1)
            held.reached.wait(SECONDS)
            wait_until(lambda: proxy.connections == 2, SECONDS, lambda: "a connection is missing")
            stop.close()
            assert proxy.connections == 0
            for client in (holding, idle):
                with pytest.raises(ConnectionResetError):
                    client.recv(1)
    assert set(threading.enumerate()) <= threads
    with socket.create_server((HOST, port)):
        pass


def test_connection_at_the_end_of_the_proxy_is_reset(proxied):
    """The event loop accepts the connection in the same iteration in which the proxy stops."""
    standing = threading.Event()
    with held_ports(1) as [port], ExitStack() as stop:
        proxy = stop.enter_context(Proxy(port, proxied.broker.proxied_address))
        proxy._loop.call_soon_threadsafe(standing.wait, SECONDS)
        with connected(proxy.bootstrap) as client:
            proxy._loop.call_soon_threadsafe(proxy._stop.set)
            standing.set()
            stop.close()
            with pytest.raises(ConnectionResetError):
                client.recv(1)


def test_broker_killed_as_its_client_leaves_is_no_proxy_failure(proxied, monkeypatch):
    """The broker's connection is closed, but the proxy has not noticed yet."""

    def not_connected(_writer):
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    monkeypatch.setattr(asyncio.StreamWriter, "write_eof", not_connected)
    with held_ports(1) as [port], Proxy(port, proxied.broker.proxied_address) as proxy:
        with connected(proxy.bootstrap) as client:
            ask(client, 1)
        wait_until(lambda: proxy.connections == 0, SECONDS, lambda: "the connection stayed")


def test_a_broker_that_is_not_there_is_no_broker(proxied):
    with held_ports(2) as [port, nobody], Proxy(port, f"{HOST}:{nobody}") as proxy:
        # The reset may arrive as soon as the client is connected.
        with pytest.raises(ConnectionResetError), connected(proxy.bootstrap) as client:
            client.recv(1)
        wait_until(lambda: proxy.connections == 0, SECONDS, lambda: "the connection stayed")


def test_other_protocol_is_reported_at_the_end(proxied):
    stop = ExitStack()
    [port] = stop.enter_context(held_ports(1))
    proxy = stop.enter_context(Proxy(port, proxied.broker.proxied_address))
    with connected(proxy.bootstrap) as client:
        client.sendall(b"GET / HTTP/1.1\r\n")
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    with pytest.raises(ExceptionGroup, match="within the proxy") as raised:
        stop.close()
    assert raised.group_contains(ValueError, match="not Kafka's protocol")


def test_used_port_is_reported_immediately():
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"), Proxy(port, f"{HOST}:1"):
            pass


def test_wait_for_an_absent_event_times_out(proxied):
    rule = proxied.proxy.add(Fault.WATCH, Api.END_TXN)
    with pytest.raises(TimeoutError, match="END_TXN"):
        rule.reached.wait(0.01)
