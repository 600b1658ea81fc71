"""A read that the brokers answer only with errors.

A real broker does not stay in that state, so the test uses librdkafka's mock cluster.
"""

import ctypes
from contextlib import closing

import pytest
from confluent_kafka import KafkaError, TopicPartition, cimpl

from spark_cas.core.errors import StorageError
from spark_cas.core.offsets import OffsetRange
from spark_cas.log.kafka.accelerators.array_producer import ArrayProducer
from spark_cas.log.kafka.accelerators.connections import Connections
from spark_cas.log.kafka.accelerators.librdkafka import library
from spark_cas.log.kafka.client.kept_clients import Readers
from spark_cas.log.kafka.offsets.reading import first_record
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from tests.kafka.proxy.frames import Api

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(60)]

_LIB = ctypes.CDLL(cimpl.__file__)
_LIB.rd_kafka_handle_mock_cluster.argtypes = (ctypes.c_void_p,)
_LIB.rd_kafka_handle_mock_cluster.restype = ctypes.c_void_p
_LIB.rd_kafka_mock_cluster_bootstraps.argtypes = (ctypes.c_void_p,)
_LIB.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
_LIB.rd_kafka_mock_topic_create.argtypes = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int
_LIB.rd_kafka_mock_push_request_errors_array.argtypes = (
    *(ctypes.c_void_p, ctypes.c_int16, ctypes.c_size_t, ctypes.POINTER(ctypes.c_int)),
)
_LIB.rd_kafka_mock_push_request_errors_array.restype = None


@pytest.mark.parametrize("code", [KafkaError.REQUEST_TIMED_OUT, KafkaError.UNKNOWN])
def test_a_read_that_only_errors_answer_ends_within_the_patience(code):
    settings = {"test.mock.num.brokers": 1, "message.max.bytes": 1_000_000, "log_level": 2}
    lib = library()
    assert lib is not None
    # A client of another topic: the mock creates each topic that a client requests.
    owner = ArrayProducer(lib, settings, "none", Connections())
    mock = _LIB.rd_kafka_handle_mock_cluster(owner._client)
    assert not _LIB.rd_kafka_mock_topic_create(mock, b"flights", 1, 1)
    _LIB.rd_kafka_mock_push_request_errors_array(mock, Api.FETCH, 10_000, (ctypes.c_int * 10_000)(*[code] * 10_000))
    address = _LIB.rd_kafka_mock_cluster_bootstraps(mock).decode()
    readers = Readers(KafkaSpec(address, "flights", client_options=(("message.timeout.ms", "2000"),)))
    with closing(readers), pytest.raises(StorageError, match="topic flights"):
        first_record(readers, TopicPartition("flights", 0), OffsetRange(0, 1))
