"""The part of librdkafka's public C API that a producer needs, with the names and types of its header rdkafka.h.

The functions are loaded from the library that confluent-kafka is linked with. So the versions match, and nothing else
has to be installed. Only structs that are public in the header are declared.
"""

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from functools import cache

from confluent_kafka import cimpl, libversion

_MAJOR_VERSION = 2

PRODUCER = 0
PURGE_ALL = 0x1 | 0x2

EVENT_DELIVERED = 0x1
EVENT_LOG = 0x4
EVENT_ERROR = 0x8

TIMESTAMP_LOG_APPEND_TIME = 2

OP_DESCRIBE_TOPICS = 19

V_RKT, V_PARTITION, V_VALUE, V_KEY, V_OPAQUE, V_MSGFLAGS, V_TIMESTAMP, V_HEADER = range(2, 10)
"""The tags of a `VU`."""

ERROR_TEXT_BYTES = 512


class Message(ctypes.Structure):
    """rd_kafka_message_t."""

    _fields_ = (
        ("err", c_int),
        ("rkt", c_void_p),
        ("partition", c_int32),
        ("payload", c_void_p),
        ("len", c_size_t),
        ("key", c_void_p),
        ("key_len", c_size_t),
        ("offset", c_int64),
        ("private", c_void_p),
    )


class VU(ctypes.Structure):
    """rd_kafka_vu_t: a tag, and the value of that type.

    It has up to a pointer or name, another pointer, and a size.
    """

    _fields_ = (("vtype", c_int), ("first", c_int64), ("second", c_int64), ("third", c_int64), ("pad", c_int64 * 5))


class TopicPartitionEntry(ctypes.Structure):
    """rd_kafka_topic_partition_t."""

    _fields_ = (
        ("topic", c_char_p),
        ("partition", c_int32),
        ("offset", c_int64),
        ("metadata", c_void_p),
        ("metadata_size", c_size_t),
        ("opaque", c_void_p),
        ("err", c_int),
        ("private", c_void_p),
    )


TOKEN_CALLBACK = ctypes.CFUNCTYPE(None, c_void_p, c_char_p, c_void_p)
"""Is called with the client when it needs a new token."""

_OFFSET = POINTER(c_int64)

_FUNCTIONS = {
    "rd_kafka_conf_new": (c_void_p,),
    "rd_kafka_conf_destroy": (None, c_void_p),
    "rd_kafka_conf_set": (c_int, c_void_p, c_char_p, c_char_p, c_char_p, c_size_t),
    "rd_kafka_conf_set_events": (None, c_void_p, c_int),
    "rd_kafka_conf_set_oauthbearer_token_refresh_cb": (None, c_void_p, TOKEN_CALLBACK),
    "rd_kafka_conf_enable_sasl_queue": (None, c_void_p, c_int),
    "rd_kafka_sasl_background_callbacks_enable": (c_void_p, c_void_p),
    "rd_kafka_oauthbearer_set_token": (
        *(c_int, c_void_p, c_char_p, c_int64, c_char_p),
        *(POINTER(c_char_p), c_size_t, c_char_p, c_size_t),
    ),
    "rd_kafka_oauthbearer_set_token_failure": (c_int, c_void_p, c_char_p),
    "rd_kafka_new": (c_void_p, c_int, c_void_p, c_char_p, c_size_t),
    "rd_kafka_destroy": (None, c_void_p),
    "rd_kafka_queue_get_main": (c_void_p, c_void_p),
    "rd_kafka_queue_poll": (c_void_p, c_void_p, c_int),
    "rd_kafka_queue_destroy": (None, c_void_p),
    "rd_kafka_set_log_queue": (c_int, c_void_p, c_void_p),
    "rd_kafka_topic_new": (c_void_p, c_void_p, c_char_p, c_void_p),
    "rd_kafka_topic_destroy": (None, c_void_p),
    "rd_kafka_query_watermark_offsets": (c_int, c_void_p, c_char_p, c_int32, _OFFSET, _OFFSET, c_int),
    "rd_kafka_produce_batch": (c_int, c_void_p, c_int32, c_int, c_void_p, c_int),
    "rd_kafka_flush": (c_int, c_void_p, c_int),
    "rd_kafka_purge": (c_int, c_void_p, c_int),
    "rd_kafka_fatal_error": (c_int, c_void_p, c_char_p, c_size_t),
    "rd_kafka_event_destroy": (None, c_void_p),
    "rd_kafka_init_transactions": (c_void_p, c_void_p, c_int),
    "rd_kafka_begin_transaction": (c_void_p, c_void_p),
    "rd_kafka_commit_transaction": (c_void_p, c_void_p, c_int),
    "rd_kafka_abort_transaction": (c_void_p, c_void_p, c_int),
    "rd_kafka_send_offsets_to_transaction": (c_void_p, c_void_p, c_void_p, c_void_p, c_int),
}

_HOLDING_THE_GIL = {
    "rd_kafka_produceva": (c_void_p, c_void_p, c_void_p, c_size_t),
    "rd_kafka_outq_len": (c_int, c_void_p),
    "rd_kafka_event_type": (c_int, c_void_p),
    "rd_kafka_event_error_is_fatal": (c_int, c_void_p),
    "rd_kafka_event_log": (c_int, c_void_p, POINTER(c_char_p), POINTER(c_char_p), POINTER(c_int)),
    "rd_kafka_event_message_count": (c_size_t, c_void_p),
    "rd_kafka_event_message_array": (c_size_t, c_void_p, POINTER(POINTER(Message)), c_size_t),
    "rd_kafka_message_broker_id": (c_int32, POINTER(Message)),
    "rd_kafka_message_timestamp": (c_int64, POINTER(Message), POINTER(c_int)),
    "rd_kafka_consumer_group_metadata_new": (c_void_p, c_char_p),
    "rd_kafka_consumer_group_metadata_destroy": (None, c_void_p),
    "rd_kafka_topic_partition_list_new": (c_void_p, c_int),
    "rd_kafka_topic_partition_list_add": (POINTER(TopicPartitionEntry), c_void_p, c_char_p, c_int32),
    "rd_kafka_topic_partition_list_destroy": (None, c_void_p),
    "rd_kafka_mem_malloc": (c_void_p, c_void_p, c_size_t),
    "rd_kafka_queue_new": (c_void_p, c_void_p),
    "rd_kafka_AdminOptions_new": (c_void_p, c_void_p, c_int),
    "rd_kafka_AdminOptions_destroy": (None, c_void_p),
    "rd_kafka_AdminOptions_set_request_timeout": (c_int, c_void_p, c_int, c_char_p, c_size_t),
    "rd_kafka_AdminOptions_set_broker": (c_int, c_void_p, c_int32, c_char_p, c_size_t),
    "rd_kafka_TopicCollection_of_topic_names": (c_void_p, POINTER(c_char_p), c_size_t),
    "rd_kafka_TopicCollection_destroy": (None, c_void_p),
    "rd_kafka_DescribeTopics": (None, c_void_p, c_void_p, c_void_p, c_void_p),
    "rd_kafka_event_error": (c_int, c_void_p),
    "rd_kafka_event_DescribeTopics_result": (c_void_p, c_void_p),
    "rd_kafka_DescribeTopics_result_topics": (POINTER(c_void_p), c_void_p, POINTER(c_size_t)),
    "rd_kafka_TopicDescription_topic_id": (c_void_p, c_void_p),
    "rd_kafka_TopicDescription_partitions": (c_void_p, c_void_p, POINTER(c_size_t)),
    "rd_kafka_Uuid_base64str": (c_char_p, c_void_p),
    "rd_kafka_error_code": (c_int, c_void_p),
    "rd_kafka_error_string": (c_char_p, c_void_p),
    "rd_kafka_error_is_fatal": (c_int, c_void_p),
    "rd_kafka_error_is_retriable": (c_int, c_void_p),
    "rd_kafka_error_txn_requires_abort": (c_int, c_void_p),
    "rd_kafka_error_destroy": (None, c_void_p),
}
"""Functions that never block, called without releasing the GIL. Releasing it would double the cost of a call.

If other threads need the GIL, the caller would also wait to get it back.
"""


@cache
def library() -> ctypes.CDLL | None:
    """Return the library with its functions. None if a build of confluent-kafka does not export them.

    The structs above are those of librdkafka 2, so the result is also None for another major version.
    """
    if libversion()[1] >> 24 != _MAJOR_VERSION:
        return None
    try:
        existing, holding = ctypes.CDLL(cimpl.__file__), ctypes.PyDLL(cimpl.__file__)
        for functions, source in ((_FUNCTIONS, existing), (_HOLDING_THE_GIL, holding)):
            for name, (result, *arguments) in functions.items():
                function = getattr(source, name)
                function.restype, function.argtypes = result, arguments
                setattr(existing, name, function)
    except (AttributeError, OSError):
        return None
    return existing
