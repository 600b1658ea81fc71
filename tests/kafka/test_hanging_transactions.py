"""`spark-cas doctor` never aborts a live transaction: it lists twice, and watches one that no coordinator lists."""

import sys
from types import SimpleNamespace

import pytest

from spark_cas.core.errors import OptionError, UnknownOutcomeError
from spark_cas.log import clock
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from tests.kafka.clients import SECONDS, append, committed_values, create_topic
from tests.kafka.open_transactions import Place, exact, hang, open_transaction, place_on
from tests.support.planted_problems import only

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


@pytest.fixture
def place(sick):
    """A topic on a broker that accepts records in a transaction that no coordinator knows."""
    return place_on(sick.bootstrap)


def test_transaction_that_ends_during_the_requests_does_not_hang(place, monkeypatch):
    from kafka import KafkaAdminClient

    listed = KafkaAdminClient.list_transactions
    with open_transaction(place.spec, f"other-{place.spec.topic}") as producer:

        def late(client, **filters):
            producer.commit_transaction(SECONDS)
            monkeypatch.undo()
            return listed(client, **filters)

        monkeypatch.setattr(KafkaAdminClient, "list_transactions", late)
        assert "HANGING_TRANSACTION" not in place.report().problems


def test_hanging_transaction_is_found_and_aborted_by_a_marker(place, watch):
    producer_id = hang(place.spec)
    [transaction] = place.transactions()
    assert (transaction.producer_id, transaction.orphaned, transaction.coordinator) == (producer_id, True, None)
    report = place.report()
    finding = only(report.problems["HANGING_TRANSACTION"])
    assert (report.code, finding["severity"]) == (8, "warning")
    assert f"--producer-id {producer_id} --producer-epoch 0 --partition 0" in finding["fix"]
    assert place.abort().code == 0
    assert place.transactions() == (transaction,), "an abort without ids is for own transactions"
    assert place.abort(*exact(transaction)).code == 2, "without a confirmation"
    assert watch.seconds == 0
    assert place.abort(*exact(transaction), "--yes").code == 0
    assert watch.seconds == 660
    assert place.transactions() == ()
    append(place.spec.bootstrap_servers, place.spec.topic, "after")
    assert committed_values(place.spec.bootstrap_servers, place.spec.topic) == ["after"]


def test_timestamps_of_records_show_no_age(place):
    hang(place.spec, timestamp_ms=0)
    [transaction] = place.transactions()
    assert (transaction.orphaned, transaction.since_ms) == (True, None)
    assert not transaction.is_overdue(clock.now_ms())
    finding = only(place.report().problems["HANGING_TRANSACTION"])
    assert (finding["severity"], finding["details"]["age_ms"]) == ("warning", None)


@pytest.mark.parametrize("watched_ms", [0, 600_000])
def test_a_transaction_of_unknown_age_is_not_aborted(place, watched_ms):
    hang(place.spec, timestamp_ms=0)
    [transaction] = place.transactions()
    with KafkaLog(place.spec) as log, pytest.raises(OptionError):
        log.abort_transaction(transaction, 0, watched_ms)
    assert place.transactions() == (transaction,)


def test_a_transaction_whose_coordinator_is_not_visible_is_not_aborted_once_it_ends(place, watch, monkeypatch):
    """Without Describe on its transactional id, a live transaction is in no list."""
    from kafka import KafkaAdminClient

    monkeypatch.setattr(KafkaAdminClient, "list_transactions", lambda *_, **__: {})
    with open_transaction(place.spec, f"other-{place.spec.topic}") as producer:

        def commit_and_begin():
            producer.commit_transaction(SECONDS)
            producer.begin_transaction()
            producer.produce(place.spec.topic, "next", partition=0)
            assert producer.flush(SECONDS) == 0

        [transaction] = place.transactions()
        watch.during = commit_and_begin
        assert (transaction.orphaned, place.abort(*exact(transaction), "--yes").code) == (True, 2)
        producer.commit_transaction(SECONDS)
    assert committed_values(place.spec.bootstrap_servers, place.spec.topic) == ["open", "next"]


def test_partition_whose_marker_is_written_is_not_orphaned(place, monkeypatch):
    """A coordinator that ends a transaction first removes the partitions that have their marker."""
    from kafka import KafkaAdminClient

    describe = KafkaAdminClient.describe_transactions
    with open_transaction(place.spec, f"other-{place.spec.topic}") as producer:

        def ending(client, names):
            monkeypatch.undo()
            result = describe(client, names)
            producer.commit_transaction(SECONDS)
            producer.begin_transaction()
            producer.produce(place.spec.topic, "next", partition=0)
            assert producer.flush(SECONDS) == 0
            return {
                name: each._replace(state="PrepareCommit", topic_partitions=set()) for name, each in result.items()
            }

        monkeypatch.setattr(KafkaAdminClient, "describe_transactions", ending)
        [transaction] = place.transactions()
        assert (transaction.orphaned, transaction.partitions[0].start_offset) == (False, 2)
        producer.commit_transaction(SECONDS)


def test_only_the_newest_epoch_of_a_producer_has_a_coordinator(sick):
    topic = create_topic(sick.bootstrap, 2)
    place = Place(KafkaSpec(sick.bootstrap, topic, topic))
    name = f"other-{topic}"
    with open_transaction(place.spec, name, partition=1) as first:
        [earlier] = place.transactions()
        first.commit_transaction(SECONDS)
    hang(place.spec, earlier.producer_id, earlier.producer_epoch)
    with open_transaction(place.spec, name, partition=1) as producer:
        listed = {each.producer_epoch: each for each in place.transactions()}
        old, new = listed.pop(earlier.producer_epoch), listed.popitem()[1]
        assert (old.orphaned, old.coordinator, old.at(topic, 0).start_offset) == (True, None, 0)
        assert (new.orphaned, new.transactional_id, new.producer_id) == (False, name, old.producer_id)
        producer.commit_transaction(SECONDS)


def test_transaction_that_changes_during_the_prompt_is_not_aborted(place, monkeypatch):
    with open_transaction(place.spec, f"other-{place.spec.topic}") as producer:
        [transaction] = place.transactions()
        prompts = []

        def answer(prompt):
            prompts.append(prompt)
            producer.commit_transaction(SECONDS)
            producer.begin_transaction()
            producer.produce(place.spec.topic, "next", partition=0)
            assert producer.flush(SECONDS) == 0
            return "y"

        monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
        monkeypatch.setattr("builtins.input", answer)
        assert place.abort(*exact(transaction)).code == 2
        assert "fences its producer" in prompts[0]
        producer.commit_transaction(SECONDS)
    assert committed_values(place.spec.bootstrap_servers, place.spec.topic) == ["open", "next"]


def test_prompt_for_a_marker_does_not_announce_a_fence(place, monkeypatch):
    hang(place.spec)
    [transaction] = place.transactions()
    prompts = []

    def answer(prompt):
        prompts.append(prompt)
        return "n"

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", answer)
    assert place.abort(*exact(transaction)).code == 2
    assert "not fenced" in prompts[0]


def test_unconfirmed_marker_is_an_unknown_outcome(place, watch, monkeypatch):
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaTimeoutError

    def lost(client, marker):
        raise KafkaTimeoutError

    hang(place.spec)
    [transaction] = place.transactions()
    monkeypatch.setattr(KafkaAdminClient, "abort_transaction", lost)
    with KafkaLog(place.spec) as log, pytest.raises(UnknownOutcomeError):
        log.abort_transaction(transaction, 0, transaction.watch_ms())
