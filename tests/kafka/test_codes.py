"""The meaning of each error code of the client, one by one. Runs without a broker."""

import re

import pytest
from confluent_kafka import KafkaError, KafkaException

from spark_cas.core.errors import LogNotFoundError, StorageError
from spark_cas.log.kafka.client.client_errors import (
    NO_COORDINATOR,
    NO_LEADER,
    NO_RIGHT_TO_GROUP,
    NOT_FOUND,
    NOT_PERMITTED,
    PARTITION_EOF,
    PASSING,
    PURGED,
    TIMED_OUT,
    UNREACHABLE,
    Meaning,
    meaning_of,
    on_topic,
    plain_error,
    reason_of,
    why_unreachable,
)

CODES = {
    name: code
    for name in dir(KafkaError)
    if re.fullmatch("_?[A-Z][A-Z_]*", name) and isinstance(code := getattr(KafkaError, name), int)
}

FENCED = {
    "_FENCED": "a newer holder of the id, or the transaction's timeout; the ledger distinguishes them",
    "PRODUCER_FENCED": "a newer epoch of the id",
    "INVALID_PRODUCER_EPOCH": "the same, from brokers before 2.7 and from partition leaders",
    "INVALID_PRODUCER_ID_MAPPING": "the id has another producer id now, as after its last epoch, or none",
}

REFUSED = {
    "_AUTHENTICATION": "before any request",
    "SASL_AUTHENTICATION_FAILED": "before any request",
    "TOPIC_AUTHORIZATION_FAILED": "checked before anything is written",
    "GROUP_AUTHORIZATION_FAILED": "checked before anything is written",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "checked before anything is written",
    "CLUSTER_AUTHORIZATION_FAILED": "checked before anything is written",
    "MSG_SIZE_TOO_LARGE": "checked before anything is written, and by the client itself",
    "RECORD_LIST_TOO_LARGE": "checked before anything is written",
    "INVALID_RECORD": "checked before anything is written",
    "INVALID_TIMESTAMP": "checked before anything is written",
    "UNSUPPORTED_COMPRESSION_TYPE": "checked before anything is written",
    "OFFSET_METADATA_TOO_LARGE": "the offset is not written, so the transaction is not committed",
    "POLICY_VIOLATION": "of a create request",
    "TOPIC_EXCEPTION": "the name is checked first",
    "INVALID_REPLICATION_FACTOR": "of a create request",
    "UNSUPPORTED_VERSION": "the request is not read any further",
    "_UNSUPPORTED_FEATURE": "the client does not send the request",
    "INVALID_TRANSACTION_TIMEOUT": "of the request for a transactional id",
    "UNKNOWN_TOPIC_OR_PART": "there is no log to write to",
    "_NOENT": "there is no log to write to",
    "_UNKNOWN_TOPIC": "there is no log to write to",
    "_UNKNOWN_PARTITION": "there is no log to write to",
}
"""The codes that count as a rejection, and why the broker cannot have written anything."""

MAY_HAVE_HAPPENED = {
    "_TIMED_OUT",
    "_TIMED_OUT_QUEUE",
    "_MSG_TIMED_OUT",
    "_TRANSPORT",
    "_ALL_BROKERS_DOWN",
    "_STATE",
    "_CONFLICT",
    "_FATAL",
    "_RETRY",
    "_PURGE_QUEUE",
    "_PURGE_INFLIGHT",
    "_DESTROY",
    "_IN_PROGRESS",
    "_PREV_IN_PROGRESS",
    "_OUTDATED",
    "_INCONSISTENT",
    "_GAPLESS_GUARANTEE",
    "REQUEST_TIMED_OUT",
    "NETWORK_EXCEPTION",
    "NOT_ENOUGH_REPLICAS",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "NOT_LEADER_FOR_PARTITION",
    "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "NOT_COORDINATOR",
    "CONCURRENT_TRANSACTIONS",
    "INVALID_TXN_STATE",
    "TRANSACTION_ABORTABLE",
    "TRANSACTION_COORDINATOR_FENCED",
    "UNKNOWN_PRODUCER_ID",
    "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "DUPLICATE_SEQUENCE_NUMBER",
    "KAFKA_STORAGE_ERROR",
    "UNSTABLE_OFFSET_COMMIT",
    "THROTTLING_QUOTA_EXCEEDED",
    "UNKNOWN",
}


def test_constants_of_the_client_are_listed():
    assert {"_FENCED", "UNKNOWN", "NO_ERROR", "TRANSACTION_ABORTABLE"} <= CODES.keys()
    assert len(CODES) > 150


@pytest.mark.parametrize("name", CODES)
def test_every_code_has_its_listed_meaning_or_unknown(name):
    listed = {**dict.fromkeys(FENCED, Meaning.FENCED), **dict.fromkeys(REFUSED, Meaning.REFUSED)}
    assert meaning_of(CODES[name]) is listed.get(name, Meaning.UNKNOWN)


def test_every_code_that_is_listed_here_is_one_of_the_clients():
    assert not (FENCED.keys() | REFUSED.keys() | MAY_HAVE_HAPPENED) - CODES.keys()


@pytest.mark.parametrize("name", sorted(MAY_HAVE_HAPPENED))
def test_possible_success_is_never_a_rejection(name):
    assert meaning_of(CODES[name]) is Meaning.UNKNOWN


@pytest.mark.parametrize("code", [-9999, -1, 0, 134, 9999])
def test_a_code_of_a_newer_client_is_unknown(code):
    assert code not in {CODES[name] for name in FENCED.keys() | REFUSED.keys()}
    assert meaning_of(code) is Meaning.UNKNOWN


@pytest.mark.parametrize("name", CODES)
def test_only_codes_without_rejection_are_retried(name):
    code = CODES[name]
    if code in PASSING:
        assert meaning_of(code) is Meaning.UNKNOWN
        assert code not in TIMED_OUT
    if code in NOT_PERMITTED:
        assert meaning_of(code) is Meaning.REFUSED


@pytest.mark.parametrize("name", sorted(CODES))
def test_every_code_has_plain_words(name):
    code = CODES[name]
    error = plain_error(
        KafkaException(KafkaError(code, "canary /a/path user=canary")), "looking", on_topic("Read", "t")
    )
    assert isinstance(error, LogNotFoundError if code in NOT_FOUND else StorageError)
    assert "canary" not in f"{error} {error!r}"
    assert str(error).endswith(".")
    if meaning_of(code) is Meaning.REFUSED or code in UNREACHABLE or code in NO_COORDINATOR:
        assert not re.search(r"\b[A-Z]{3,}_[A-Z_]+", error.message)  # words, no constants
    else:
        assert KafkaError(code).name() in str(error)


def test_a_right_of_another_kind_is_not_named():
    error = KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    told = str(plain_error(error, "looking", on_topic("Read", "t")))
    assert "the right to do that on the group is missing" in told
    assert "Read" not in told


def test_most_specific_reason_explains_silence():
    everything = set(CODES.values())
    telling = [KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE, KafkaError._ALL_BROKERS_DOWN]
    for code in telling:
        if code == telling[0]:
            everything.discard(KafkaError.SASL_AUTHENTICATION_FAILED)
        assert why_unreachable(everything) == code
        everything.discard(code)
    assert why_unreachable(everything) == KafkaError._TIMED_OUT
    assert why_unreachable(set()) == KafkaError._TIMED_OUT
    assert why_unreachable({KafkaError._TRANSPORT}) not in PASSING


def test_names_for_single_codes():
    assert PARTITION_EOF == KafkaError._PARTITION_EOF
    assert NO_LEADER == KafkaError._NOENT
    assert NO_RIGHT_TO_GROUP == KafkaError.GROUP_AUTHORIZATION_FAILED
    assert {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._FATAL} == PURGED
    assert reason_of(9999) == KafkaError(9999).name()
