"""Produce records from Arrow arrays, without a Python object for each record.

It uses librdkafka's C API (`spark_cas.log.kafka.accelerators.librdkafka`). Settings, methods and errors are those of
confluent-kafka's producer, as far as this package uses them.

Saves: half of the CPU time of a record with its sender, and the requests of another client after a commit (decision
0010). Rows `kafka-write`, `kafka-write-shapes` and `kafka-append` of docs/performance.md.
Public path: `spark_cas.log.kafka.client.object_producer`.
Tested: confluent-kafka 2.16. A build that does not export the functions uses the public path.
"""

import ctypes
import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from itertools import repeat
from threading import Lock
from typing import Concatenate, ParamSpec, Protocol, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from spark_cas.core.offsets import Bounds
from spark_cas.core.records import fill_timestamps
from spark_cas.log.finalizing import finalizers
from spark_cas.log.kafka.accelerators import librdkafka as c
from spark_cas.log.kafka.accelerators.record_arrays import arguments_of, messages_of

# ruff: noqa: SLF001 - librdkafka names its own errors with an underscore; they are public

_SLICE_ROWS = 20_000
"""How many rows have their addresses prepared at a time, about 200 bytes each."""

TokenOf = Callable[[str], tuple[str, float, str, dict[str, str]]]
"""Returns a token, its expiry time in seconds since 1970, the principal, and SASL extensions."""

P = ParamSpec("P")
R = TypeVar("R")


class Logger(Protocol):
    """Receives the log lines of librdkafka."""

    def log(self, level: int, form: str, /, *args: object) -> None: ...


class Reports(Protocol):
    """Receives the delivery reports of records."""

    explicit_ms: int | None

    def take(self, count: int, first: int, last: int) -> None: ...

    def take_error(self, count: int, error: KafkaError) -> None: ...


class Lifetime:
    """A context for each call. It calls ``end`` exactly once."""

    def __init__(self, end: Callable[[], object]) -> None:
        self._end = end
        self._lock = Lock()
        self._calls = 0
        self._over = False

    def __enter__(self) -> None:
        """Begin a call. Raises KafkaException after `finish`."""
        with self._lock:
            if self._over:
                raise KafkaException(KafkaError(KafkaError._DESTROY))
            self._calls += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._calls -= 1
            ends = self._over and not self._calls
        if ends:
            self._end()

    def finish(self) -> None:
        """Call ``end`` now, or when the last running call returns. Reject new calls."""
        with self:
            self._over = True


def _call(method: Callable[Concatenate["ArrayProducer", P], R]) -> Callable[Concatenate["ArrayProducer", P], R]:
    """Wrap a method so that the client is not destroyed during a call."""

    @wraps(method)
    def within(self: "ArrayProducer", /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._lifetime:
            return method(self, *args, **kwargs)

    return within


class ArrayProducer:
    """A producer for one topic. Raises KafkaException for settings that it cannot start with, and in each method.

    ``oauth_cb`` in the settings is a function as for confluent-kafka's producer.
    """

    def __init__(self, lib: ctypes.CDLL, settings: Mapping[str, object], topic: str, logger: Logger) -> None:
        self._lib = lib
        self._logger = logger
        self._most_bytes = int(str(settings["message.max.bytes"]))
        # Python may collect this object in a thread of the library, which must not destroy its own client.
        queue = finalizers() if "oauth_cb" in settings else None
        self._client, refresh = _new(lib, settings)
        self._queue = lib.rd_kafka_queue_get_main(self._client)
        lib.rd_kafka_set_log_queue(self._client, None)
        self._name = topic.encode()
        self._topic = lib.rd_kafka_topic_new(self._client, self._name, None)
        self._lent: list[pa.ChunkedArray] = []
        # librdkafka's threads may outlive Python's objects when the process exits, and must not read freed memory.
        kept = (self._lent, refresh)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
        destroy = partial(_destroy, lib, self._client, self._queue, self._topic, kept)
        end = weakref.finalize(self, *((destroy,) if queue is None else (queue.put, destroy)))
        end.atexit = False
        self._lifetime = Lifetime(end)
        self._reports: Reports
        self._enqueued = 0
        self._acknowledged_by = -1
        """The broker that last acknowledged records, -1 if none has."""
        self._gives_time = False

    @_call
    def __len__(self) -> int:
        """Return the number of records and requests that are not reported yet."""
        return int(self._lib.rd_kafka_outq_len(self._client))

    @_call
    def hand_over(self, partition: int, records: pa.Table, time_ms: int, reports: Reports) -> None:
        """Queue records for sending, in order. Records without a timestamp get ``time_ms`` or the current time.

        `poll` updates the reports until the next call of this method. The values are not copied, and are
        kept in memory until no record is in flight. Raises KafkaException.
        """
        self._enqueued += 1
        self._lent.append(records.column("value"))
        times = records.column("timestamp")
        self._reports = reports
        self._gives_time = times.null_count == len(times)
        headers = records.column("headers")
        if self._gives_time and (headers.null_count == len(headers) or not len(pc.list_flatten(headers))):
            self._produce_batch(partition, records)
        else:
            self._produce_each(partition, fill_timestamps(records, time_ms))

    @_call
    def poll(self, seconds: float) -> None:
        """Wait for events and process all of them. Raises KafkaException if the producer has a fatal error."""
        self._take_news(seconds)

    @_call
    def flush(self, seconds: float) -> None:
        """Send queued records for at most this time, and process all events. Raises KafkaException as `poll`."""
        self._lib.rd_kafka_flush(self._client, _ms(seconds))
        # A flush logs a line itself, which would wake the next poll.
        self._take_news(0)

    def meet_leader(self, partition: int, seconds: float) -> None:
        """Connect to the leader of a partition, if the brokers answer within this time. Raises KafkaException.

        The method requests the bounds of the partition and ignores them. Without a request, the client (librdkafka
        2.16) connects to a broker only 11 ms after it has learned of it.
        """
        self.decided_bounds(partition, seconds)

    @_call
    def decided_bounds(self, partition: int, seconds: float) -> Bounds:
        """Request the start and the last stable offset from the partition's leader. Raises KafkaException."""
        start, end = ctypes.c_int64(), ctypes.c_int64()
        code = self._lib.rd_kafka_query_watermark_offsets(
            self._client, self._name, partition, ctypes.byref(start), ctypes.byref(end), _ms(seconds)
        )
        if code:
            raise KafkaException(KafkaError(code))
        return Bounds(start.value, end.value)

    @_call
    def describe(self, seconds: float) -> tuple[str, int]:
        """Request the id and the partition count of the topic from the broker that last acknowledged records.

        If the topic does not exist, the returned id belongs to no topic. Raises KafkaException, at once if no
        broker has acknowledged records.
        """
        if self._acknowledged_by < 0:
            raise KafkaException(KafkaError(KafkaError._STATE))
        lib, text = self._lib, ctypes.create_string_buffer(c.ERROR_TEXT_BYTES)
        names, queue = (ctypes.c_char_p * 1)(self._name), lib.rd_kafka_queue_new(self._client)
        topics = lib.rd_kafka_TopicCollection_of_topic_names(names, len(names))
        options = lib.rd_kafka_AdminOptions_new(self._client, c.OP_DESCRIBE_TOPICS)
        event = None
        try:
            lib.rd_kafka_AdminOptions_set_request_timeout(options, _ms(seconds), text, len(text))
            lib.rd_kafka_AdminOptions_set_broker(options, self._acknowledged_by, text, len(text))
            lib.rd_kafka_DescribeTopics(self._client, topics, options, queue)
            event = lib.rd_kafka_queue_poll(queue, _ms(seconds))
            error = lib.rd_kafka_event_error(event) if event else KafkaError._TIMED_OUT
            if error:
                raise KafkaException(KafkaError(error))
            return _described(lib, lib.rd_kafka_event_DescribeTopics_result(event))
        finally:
            if event:
                lib.rd_kafka_event_destroy(event)
            lib.rd_kafka_AdminOptions_destroy(options)
            lib.rd_kafka_TopicCollection_destroy(topics)
            lib.rd_kafka_queue_destroy(queue)

    @_call
    def init_transactions(self, seconds: float) -> None:
        """Fence earlier producers of the transactional id. Raises KafkaException."""
        self._check(self._lib.rd_kafka_init_transactions(self._client, _ms(seconds)))

    @_call
    def begin_transaction(self) -> None:
        self._check(self._lib.rd_kafka_begin_transaction(self._client))

    @_call
    def commit_transaction(self, seconds: float) -> None:
        self._check(self._lib.rd_kafka_commit_transaction(self._client, _ms(seconds)))

    @_call
    def abort_transaction(self, seconds: float) -> None:
        self._check(self._lib.rd_kafka_abort_transaction(self._client, _ms(seconds)))

    @_call
    def send_offsets_to_transaction(self, offsets: Sequence[TopicPartition], group: str, seconds: float) -> None:
        """Add offsets of a group without members to the transaction. Raises KafkaException."""
        lib = self._lib
        entries = _entries(lib, offsets)
        metadata = lib.rd_kafka_consumer_group_metadata_new(group.encode())
        try:
            self._check(lib.rd_kafka_send_offsets_to_transaction(self._client, entries, metadata, _ms(seconds)))
        finally:
            lib.rd_kafka_consumer_group_metadata_destroy(metadata)
            lib.rd_kafka_topic_partition_list_destroy(entries)

    @_call
    def drop(self) -> None:
        """Drop unacknowledged records, which are not sent again, and destroy the client. Every later call fails.

        The threads of the client end after the last running call. They do not wait for the garbage collection of this
        object, because the traceback of an error may keep it alive for long.
        """
        self._lib.rd_kafka_purge(self._client, c.PURGE_ALL)
        self._lifetime.finish()

    def _take_news(self, seconds: float) -> None:
        # Called within another call, without a lifetime check of its own: that would fail if another thread dropped
        # the client.
        fatal = None
        event = self._lib.rd_kafka_queue_poll(self._queue, _ms(seconds))
        while event:
            try:
                fatal = self._take(event) or fatal
            finally:
                self._lib.rd_kafka_event_destroy(event)
            event = self._lib.rd_kafka_queue_poll(self._queue, 0)
        if not self._lib.rd_kafka_outq_len(self._client):
            self._lent.clear()
        if fatal is not None:
            raise KafkaException(fatal)

    def _produce_batch(self, partition: int, records: pa.Table) -> None:
        # One call for all records gives all of them the same timestamp.
        messages = messages_of(records, self._enqueued)
        if int((messages["len"] + messages["key_len"]).max(initial=0)) > self._most_bytes:
            # The library would accept all other records, including later ones.
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        used = self._lib.rd_kafka_produce_batch(self._topic, partition, 0, messages.ctypes.data, len(messages))
        if used < len(messages):
            failed = messages["err"][messages["err"] != 0]
            raise KafkaException(KafkaError(int(failed[0])))

    def _produce_each(self, partition: int, records: pa.Table) -> None:
        for batch in records.to_batches(max_chunksize=_SLICE_ROWS):
            for addresses, counts in arguments_of(batch, self._topic, partition, self._enqueued):
                calls = map(self._lib.rd_kafka_produceva, repeat(self._client), addresses, counts)
                self._check(next(filter(None, calls), None))

    def _take(self, event: int) -> KafkaError | None:
        """Process an event. Return the error if the producer has a fatal one."""
        lib, kind = self._lib, self._lib.rd_kafka_event_type(event)
        if kind == c.EVENT_DELIVERED:
            self._take_reports(event)
        elif kind == c.EVENT_LOG:
            facility, line, level = ctypes.c_char_p(), ctypes.c_char_p(), ctypes.c_int()
            lib.rd_kafka_event_log(event, ctypes.byref(facility), ctypes.byref(line), ctypes.byref(level))
            self._logger.log(level.value, "%s %s", _text(facility.value), _text(line.value))
        elif kind == c.EVENT_ERROR and lib.rd_kafka_event_error_is_fatal(event):
            text = ctypes.create_string_buffer(c.ERROR_TEXT_BYTES)
            code = lib.rd_kafka_fatal_error(self._client, text, len(text))
            return KafkaError(code, _text(text.value), fatal=True)
        return None

    def _take_reports(self, event: int) -> None:
        """Process the reports of an event. Its records are consecutive and have the same result."""
        count = self._lib.rd_kafka_event_message_count(event)
        pointers = (ctypes.POINTER(c.Message) * count)()
        count = self._lib.rd_kafka_event_message_array(event, pointers, count)
        # Reports of earlier records are ignored. Those may have shared a request with these records.
        begin = next((at for at in range(count) if pointers[at].contents.private == self._enqueued), count)
        if begin == count:
            return
        first, last, reports = pointers[begin].contents, pointers[count - 1].contents, self._reports
        error = first.err or last.err
        if error:
            reports.take_error(count - begin, KafkaError(error))
            return
        reports.take(count - begin, first.offset, last.offset)
        self._acknowledged_by = self._lib.rd_kafka_message_broker_id(pointers[count - 1])
        whose = ctypes.c_int()
        time_ms = self._lib.rd_kafka_message_timestamp(pointers[count - 1], ctypes.byref(whose))
        if self._gives_time or whose.value == c.TIMESTAMP_LOG_APPEND_TIME:
            reports.explicit_ms = time_ms

    def _check(self, failed: int | None) -> None:
        if failed:
            lib = self._lib
            error = KafkaError(
                lib.rd_kafka_error_code(failed),
                _text(lib.rd_kafka_error_string(failed)),
                fatal=bool(lib.rd_kafka_error_is_fatal(failed)),
                retriable=bool(lib.rd_kafka_error_is_retriable(failed)),
                txn_requires_abort=bool(lib.rd_kafka_error_txn_requires_abort(failed)),
            )
            lib.rd_kafka_error_destroy(failed)
            raise KafkaException(error)


def _new(lib: ctypes.CDLL, settings: Mapping[str, object]) -> tuple[int, object]:
    """Return a new client, and the callback that it calls for tokens, which has to exist as long as the client."""
    text = ctypes.create_string_buffer(c.ERROR_TEXT_BYTES)
    conf = lib.rd_kafka_conf_new()
    made = None
    token_of = settings.get("oauth_cb")
    refresh = _refreshing(lib, cast("TokenOf", token_of)) if token_of is not None else None
    if refresh is not None:
        lib.rd_kafka_conf_set_oauthbearer_token_refresh_cb(conf, refresh)
        lib.rd_kafka_conf_enable_sasl_queue(conf, 1)
    plain = {name: value for name, value in settings.items() if name != "oauth_cb"}
    for name, value in {**plain, "log.queue": True}.items():
        message = str(value).lower() if isinstance(value, bool) else str(value)
        if lib.rd_kafka_conf_set(conf, name.encode(), message.encode(), text, len(text)):
            break
    else:
        lib.rd_kafka_conf_set_events(conf, c.EVENT_DELIVERED | c.EVENT_LOG | c.EVENT_ERROR)
        made = lib.rd_kafka_new(c.PRODUCER, conf, text, len(text))
    if not made:
        lib.rd_kafka_conf_destroy(conf)
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, _text(text.value)))
    if refresh is not None:
        # From a thread of the library, because a producer that is idle or within a long call is not polled.
        lib.rd_kafka_sasl_background_callbacks_enable(made)
    return int(made), refresh


def _refreshing(lib: ctypes.CDLL, token_of: TokenOf) -> object:
    """Return the callback with which the library requests a token."""

    def refresh(client: int, _config: bytes | None, _opaque: int | None) -> None:
        text = ctypes.create_string_buffer(c.ERROR_TEXT_BYTES)
        try:
            token, expiry, principal, extensions = token_of("")
            names = [part.encode() for pair in extensions.items() for part in pair]
            failed = lib.rd_kafka_oauthbearer_set_token(
                *(client, token.encode(), int(1000 * expiry), principal.encode()),
                *((ctypes.c_char_p * len(names))(*names), len(names), text, len(text)),
            )
        except Exception:  # noqa: BLE001 - the provider keeps its error, and the library has no use for it
            failed = True
        if failed:
            lib.rd_kafka_oauthbearer_set_token_failure(client, text.value or b"no token")

    return c.TOKEN_CALLBACK(refresh)


def _destroy(
    lib: ctypes.CDLL, client: int, queue: int, topic: int, kept: tuple[list[pa.ChunkedArray], object]
) -> None:
    lib.rd_kafka_topic_destroy(topic)
    lib.rd_kafka_queue_destroy(queue)
    lib.rd_kafka_destroy(client)
    kept[0].clear()
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(kept))


def _described(lib: ctypes.CDLL, result: int) -> tuple[str, int]:
    """Return the id and the partition count of the only topic in a result."""
    count = ctypes.c_size_t()
    topic = lib.rd_kafka_DescribeTopics_result_topics(result, ctypes.byref(count))[0]
    topic_id = _text(lib.rd_kafka_Uuid_base64str(lib.rd_kafka_TopicDescription_topic_id(topic)))
    lib.rd_kafka_TopicDescription_partitions(topic, ctypes.byref(count))
    return topic_id, count.value


def _entries(lib: ctypes.CDLL, offsets: Sequence[TopicPartition]) -> int:
    """Return offsets with their metadata as a list of librdkafka."""
    entries = lib.rd_kafka_topic_partition_list_new(len(offsets))
    for each in offsets:
        entry = lib.rd_kafka_topic_partition_list_add(entries, each.topic.encode(), each.partition).contents
        entry.offset = each.offset
        if each.metadata is not None:
            # confluent-kafka writes the metadata with a final NUL, and without one would read past its end.
            text = each.metadata.encode() + b"\0"
            # The list frees this memory.
            entry.metadata, entry.metadata_size = lib.rd_kafka_mem_malloc(None, len(text)), len(text)
            ctypes.memmove(entry.metadata, text, len(text))
    return int(entries)


def _ms(seconds: float) -> int:
    return max(0, math.ceil(1000 * seconds))


def _text(message: bytes | None) -> str:
    return (message or b"").decode(errors="replace")
