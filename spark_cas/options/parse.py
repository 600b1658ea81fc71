"""Parse Spark's options, which are text with case-insensitive names, to a typed request, or one for each topic.

It rejects options that contradict each other or the kind of the write.
"""

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

from spark_cas.core.check_name import check_name
from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.errors import ConditionalLogError, Fields, OptionError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.guarantee import OFF, REQUIRED
from spark_cas.core.partitioner import Partitioner
from spark_cas.log.open import AnySpec
from spark_cas.options.option_values import OptionValues, is_for
from spark_cas.options.read_range import (
    EARLIEST,
    LATEST,
    Numbers,
    ReadLimit,
    ReadRange,
    Splitting,
    TriggerLimits,
    parse_object,
)
from spark_cas.options.request import LOCK_WAIT_TIMEOUT_MS, ReadRequest, StreamRequest, WriteRequest, has_load_lock
from spark_cas.options.table import (
    ATOMIC_LOAD,
    ATOMIC_PARTITION,
    BY_KEY,
    DEPRECATED_IDEMPOTENCE,
    ISOLATION_LOAD,
    READING,
    SERVERS,
    VIEWS_OF_RECORDS,
    Scope,
    one_topic,
)

LIMITS_OF_READS = (
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
)
"""The options that name the first or last record of a read."""


def as_text(path_or_options: str | Mapping[str, str | float | None]) -> dict[str, str]:
    """Return a path or a dict of options as text. Like Spark's ``options``, it leaves out each value None."""
    values = {"path": path_or_options} if isinstance(path_or_options, str) else path_or_options
    return {name: str(value) for name, value in values.items() if value is not None}


def check_read(options: Mapping[str, str]) -> tuple[str, bool]:
    """Return the view and whether to include headers. CREATE TABLE calls this without a path."""
    values = OptionValues(options, *READING)
    return values.need("view", str), values.need("includeHeaders", bool)


def parse_read(options: Mapping[str, str]) -> ReadRequest:
    """Parse the options of a read; raise OptionError for any that is unknown, malformed or missing."""
    values = OptionValues(options, Scope.READ)
    values.log_unused()
    view = values.need("view", str)
    if view not in VIEWS_OF_RECORDS:
        for name in ("assign", "logId", *LIMITS_OF_READS):
            if name.lower() in values.explicit:
                raise OptionError(
                    f"option {name} is for view=records and view=newest. Other views show the whole log. Remove it."
                )
    ending = _limit(values, "ending", LATEST, or_latest=True)
    selection, log_id = values.need_selection(), values.get("logId", str)
    if log_id is not None:
        selection.only()
    return ReadRequest(
        replace(selection, log_id=log_id),
        replace(_range(values, EARLIEST, ending), known=log_id is not None),
        _splitting(values),
        view,
        values.need("includeHeaders", bool),
    )


def parse_read_stream(options: Mapping[str, str]) -> StreamRequest:
    """Parse the options of a streaming read; raise OptionError for any that is unknown, malformed or missing."""
    values = OptionValues(_without_query_options(options), Scope.READ_STREAM)
    values.log_unused()
    most, least = (values.get(name, int, explicit=False) for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger"))
    if most is not None and least is not None and least > most:
        raise OptionError(
            "option minOffsetsPerTrigger is above maxOffsetsPerTrigger. Lower the one or raise the other."
        )
    whole_loads = values.need("isolation", str) == ISOLATION_LOAD
    if whole_loads and most is not None:
        raise OptionError(
            "options isolation=load and maxOffsetsPerTrigger, given or a default of the log, do not go together: so "
            "many offsets may end within a load. Leave out the one or the other."
        )
    selection, commit_group = values.need_selection(), values.get("commitGroup", str)
    if commit_group is not None and commit_group.startswith(f"{values.need('idPrefix', str)}/"):
        raise OptionError(
            "option commitGroup names a group of the ledger, because it begins with idPrefix. Nothing was read. Name "
            "another group."
        )
    return StreamRequest(
        selection,
        _range(values, LATEST, ReadLimit("endingOffsets", LATEST)),
        _splitting(values),
        trigger=TriggerLimits(most, least, values.need("maxTriggerDelay", int)),
        whole_loads=whole_loads,
        allow_unsubscribed=values.need("allowUnsubscribedTopics", bool),
        processing_time=values.need("processingTime", bool),
        commit_group=commit_group,
    )


def parse_write(options: Mapping[str, str]) -> WriteRequest:
    """Parse the options of a write; raise OptionError for any that is unknown, malformed or missing."""
    return _parsed_write(options)[0]


def parse_load(options: Mapping[str, str]) -> WriteRequest:
    """Parse the options of a bulk load, which routes its rows and writes them, as `parse_write`."""
    request, values = _parsed_write(options)
    return replace(request, reading=_reading(values))


def _parsed_write(options: Mapping[str, str]) -> tuple[WriteRequest, OptionValues]:
    values = OptionValues(options, Scope.WRITE)
    in_batch = "batchid" in values.explicit
    if in_batch and "job" not in values.explicit:
        raise OptionError("option batchId needs option job, the name of the stream of the batch.")
    if "orderby" in values.explicit and not in_batch:
        raise OptionError("option orderBy is for streams. Sort a load with spark_cas.route(df, ..., order_by=[...]).")
    if not in_batch:
        values.log_unused()
        _refuse_of_plans(values)
    return _checked_write(values, stream=in_batch), values


def parse_write_stream(options: Mapping[str, str]) -> WriteRequest:
    """Parse the options of a streaming write; raise OptionError for any that is unknown, malformed or missing."""
    values = OptionValues(_without_query_options(options), Scope.WRITE)
    if "batchid" in values.explicit:
        raise OptionError("option batchId is only for foreachBatch. In a stream, Spark passes the batch. Remove it.")
    return _checked_write(values, stream=True)


def parse_route(options: Mapping[str, str]) -> WriteRequest:
    """Parse the options of a write for `route`, which cannot know whether the write is a load or a stream.

    Raises:
        OptionError: An option is unknown, malformed or missing.
    """
    values = OptionValues(_without_query_options(options), Scope.WRITE)
    values.log_unused()
    return replace(_write_request(values, stream=False), reading=_reading(values))


def _reading(values: OptionValues) -> tuple[tuple[str, str], ...]:
    """Return the options that a read of the same log takes."""
    return tuple(sorted((key, value) for key, value in values.explicit.items() if is_for(key, Scope.READ)))


def _lock_wait_timeout_ms(values: OptionValues, spec: AnySpec, expected: ExpectedOffsets) -> int:
    """Return the lock timeout, by default 0 with explicit expected offsets, which any other load invalidates.

    Raises OptionError if the option is set, and the load has no lock.
    """
    whole = values.need("atomic", str) == ATOMIC_LOAD
    has_lock = has_load_lock(spec, expected, values.need("compare", str), whole=whole)
    if "lockwaittimeout" in values.explicit and not has_lock:
        raise OptionError(
            "option lockWaitTimeout is for loads that check the offsets of partitions, and this load has no lock. "
            "Remove it."
        )
    timeout_ms = values.get("lockWaitTimeout", int, explicit=False)
    if timeout_ms is not None:
        return timeout_ms
    return 0 if expected.mode == "offsets" else LOCK_WAIT_TIMEOUT_MS


_OF_QUERIES = frozenset({"checkpointlocation", "queryname"})
"""Options of a streaming query that Spark also passes to its sink."""


def _without_query_options(options: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in options.items() if key.lower() not in _OF_QUERIES}


def _checked_write(values: OptionValues, *, stream: bool) -> WriteRequest:
    if stream:
        _refuse_of_loads(values)
    word = values.merged.get("idempotence", "").strip().lower()
    if word in DEPRECATED_IDEMPOTENCE:
        warnings.warn(
            f"option idempotence: {word} is deprecated (KIP-192). Use {DEPRECATED_IDEMPOTENCE[word]} instead.",
            FutureWarning,
            stacklevel=3,
        )
    return _write_request(values, stream=stream)


def _write_request(values: OptionValues, *, stream: bool) -> WriteRequest:
    job, spec = values.get("job", str), values.need_selection().only()
    expected = _expected_offsets(values, stream=stream)
    return WriteRequest(
        spec=spec,
        job=None if job is None else check_name(job, "option job"),
        expected_offsets=expected,
        checked=values.need("checkExpectedOffsets", bool),
        compare=values.need("compare", str),
        atomic=values.need("atomic", str) == ATOMIC_PARTITION,
        whole=values.need("atomic", str) == ATOMIC_LOAD,
        partitions=values.get("partitions", int),
        new_partitions=values.get("partitions", int, explicit=False),
        partitioner=cast("Partitioner | None", values.get("partitioner", str, explicit=False)),
        limits=ChunkLimits(
            values.need("maxRecordsPerChunk", int),
            values.need("maxBytesPerChunk", int),
            values.need("maxSecondsPerChunk", float),
            max_bytes_setting="option maxBytesPerChunk, which is --max-bytes-per-chunk of a bulk load",
        ),
        routed=values.need("routed", bool),
        fenced_retry_wait_ms=values.need("fencedRetryWaitMs", int),
        lock_wait_timeout_ms=_lock_wait_timeout_ms(values, spec, expected),
        batch_id=values.get("batchId", int),
        order_by=values.get("orderBy", tuple, explicit=False) or (),
        round_of=values.get("roundOf", str) or "",
        idempotence=REQUIRED if stream else values.need("idempotence", str),
        report=values.get("report", str),
        metrics=values.get("metrics", str, explicit=False),
        names=tuple(BY_KEY[key].name if key in BY_KEY else key for key in values.explicit),
        lineage=values.need("lineage", bool),
    )


def _range(values: OptionValues, first: int, ending: ReadLimit) -> ReadRange:
    """Return the range to read; ``first`` is the default start."""
    or_latest = values.need("startingOffsetsByTimestampStrategy", str) == "latest"
    return ReadRange(
        _limit(values, "starting", first, or_latest=or_latest), ending, values.need("failOnDataLoss", bool)
    )


def _limit(values: OptionValues, side: str, default: int, *, or_latest: bool) -> ReadLimit:
    """Return one end of a read. Like Spark's Kafka source, the first option with a value wins."""
    for option in (f"{side}Timestamp", f"{side}OffsetsByTimestamp"):
        times = values.get(option, object)
        if times is not None:
            return ReadLimit(option, cast("int | Numbers", times), timed=True, or_latest=or_latest)
    offsets = values.get(f"{side}Offsets", object)
    return ReadLimit(f"{side}Offsets", default if offsets is None else cast("int | Numbers", offsets))


def _splitting(values: OptionValues) -> Splitting:
    return Splitting(
        values.get("minPartitions", int, explicit=False), values.get("maxRecordsPerPartition", int, explicit=False)
    )


def _expected_offsets(values: OptionValues, *, stream: bool) -> ExpectedOffsets:
    """Return the expected offsets; raise OptionError if they are explicit but the check is off."""
    expected, none = values.need("expectedOffsets", ExpectedOffsets), ExpectedOffsets("none")
    off = values.need("idempotence", str) == OFF and "checkexpectedoffsets" not in values.explicit
    if (stream or off) and "expectedoffsets" not in values.explicit:
        return none
    if values.need("checkExpectedOffsets", bool) or expected == none:
        return expected
    if "expectedoffsets" in values.explicit:
        raise OptionError(
            "option expectedOffsets needs a check, but checkExpectedOffsets is false for this write or in its log's "
            "defaults. Remove expectedOffsets, or set checkExpectedOffsets=true."
        )
    return none


_OF_LOADS = {
    "compare": "a micro-batch cannot have conditions on keys",
    "roundOf": "append_if_unchanged does not accept a stream",
    "lockWaitTimeout": "a stream does not wait for a load; with atomic=load it waits up to an hour",
    "report": "a stream is never complete. view=progress shows its progress",
}
_WITH_PLAN = {"job": "a rerun could not find the rows of the job", "roundOf": "its rows have conditions on keys"}


def _refuse_of_loads(values: OptionValues) -> None:
    """Raise OptionError for an option of loads in a streaming write."""
    for name, why in _OF_LOADS.items():
        if name.lower() in values.explicit:
            raise OptionError(f"option {name} is for loads: {why}. Remove it.")
    if "atomic" in values.explicit and values.need("atomic", str) == ATOMIC_PARTITION:
        raise OptionError(
            "option atomic of a stream must be load, for atomic micro-batches, or absent. Without it, the rows of a "
            "micro-batch in a partition are one chunk, unless orderBy allows several."
        )
    if "idempotence" in values.explicit and values.need("idempotence", str) != REQUIRED:
        raise OptionError(
            f"option idempotence of a stream must be {REQUIRED}. Spark replays batches after a failure, and without "
            f"a ledger each replay would append its rows again. Remove it, or write in foreachBatch without batchId."
        )


def _refuse_of_plans(values: OptionValues) -> None:
    """Raise OptionError for an option that needs a plan if ``idempotence`` is ``off``."""
    if values.need("idempotence", str) == OFF:
        for name, why in _WITH_PLAN.items():
            if name.lower() in values.explicit:
                raise OptionError(
                    f"option {name} needs idempotence, which an option or the log's defaults set to off: {why}. "
                    f"Remove option {name}, or set idempotence={REQUIRED}."
                )


MOST_TOPICS = 100
"""The maximum number of topics of a write. The driver plans them one after the other."""

_ONE_TOPIC = "Set option topic, and write the rows of each topic as a load of its own."
_EXPECTED = "expectedoffsets"
_OF_ONE_TOPIC = {
    "roundOf": "append_if_unchanged appends to one topic",
    "report": "the file contains the result of one topic",
}


def names_no_topic(options: Mapping[str, str]) -> bool:
    """Return whether the options of a write name brokers, but no topic and no path."""
    names = {name.lower() for name in options}
    return SERVERS in names and names.isdisjoint({"topic", "path", "paths"})


def stream_to_topics() -> OptionError:
    """Return the error for a streaming query that names no topic: only a batch shows the topics of its rows."""
    return OptionError(
        "the options of this stream name no topic, and only in foreachBatch can the rows name their topics. Nothing "
        "was appended. Use writeStream.foreachBatch(append); in append(batch, batch_id), add batchId=batch_id to the "
        "options with job, and write spark_cas.route(batch, options) with these options."
    )


def parsed_by_topic(
    options: Mapping[str, str], topics: Iterable[str], parse: Callable[[Mapping[str, str]], WriteRequest]
) -> dict[str, WriteRequest]:
    """Parse the options of a write, which name no topic, for each of the topics of its rows.

    Returns the request by topic, sorted. They include the topics that only ``expectedOffsets`` names. Raises
    OptionError if an option is invalid, or does not apply to several topics.
    """
    common = {name.lower(): value for name, value in options.items()}
    for name, why in _OF_ONE_TOPIC.items():
        if name.lower() in common:
            raise OptionError(f"option {name} needs option topic: {why}. Nothing was appended. {_ONE_TOPIC}")
    offsets = _offsets_by_topic(common.get(_EXPECTED))
    if offsets:
        del common[_EXPECTED]
    parsed: dict[str, WriteRequest] = {}
    for topic in sorted({*topics, *offsets}):
        _require_topic(topic)
        own = {_EXPECTED: offsets[topic]} if topic in offsets else {}
        with of_topic(topic):
            parsed[topic] = parse({**common, **own, "topic": topic})
    for topic, each in parsed.items():
        if each.whole:
            raise OptionError(
                f"topic {topic}: atomic=load, given or a default of the log, is for one topic, and the column topic "
                f"can name several. Nothing was appended. {_ONE_TOPIC}"
            )
    return {topic: replace(each, topics=tuple(parsed)) for topic, each in parsed.items()}


@contextmanager
def of_topic(topic: str) -> Iterator[None]:
    """Add the name of the topic to an error of the ``with`` block."""
    try:
        yield
    except ConditionalLogError as error:
        raise error_of_topics({topic: error}) from None


def error_of_topics(errors: Mapping[str, ConditionalLogError]) -> ConditionalLogError:
    """Return the first of these errors, with the messages of all. Rows and offsets are by topic, then partition.

    Other fields are those of the first error, and are missing if there are several.
    """
    first = next(iter(errors.values()))
    messages = [f"[{error.kind}] topic {topic}: {error.message}" for topic, error in errors.items()]
    message = " ".join(messages).removeprefix(f"[{first.kind}] ")
    rows = {topic: error.appended_rows for topic, error in errors.items() if error.appended_rows is not None}
    offsets = {topic: error.next_offsets for topic, error in errors.items() if error.next_offsets is not None}
    several: Fields = {"appended_rows": rows or None, "next_offsets": offsets or None}
    if len(errors) > 1:
        several |= {"partition": None, "row": None, "offset": None, "expected_offset": None, "actual_offset": None}
    return first.with_message(message, **several)


def _require_topic(topic: str) -> None:
    try:
        valid = one_topic(topic) == topic
    except ValueError:
        valid = False
    if not valid:
        raise OptionError(
            f"{topic!r} is no name of a topic (A-Z a-z 0-9 . _ -). Nothing was appended. Correct the column topic, "
            f"or the topics in option expectedOffsets."
        )


def _offsets_by_topic(text: str | None) -> dict[str, str]:
    """Return the JSON offsets of each topic; empty if the option is not set, ``end`` or ``none``."""
    if text is None or text.strip().lower() in ("end", "none"):
        return {}
    try:
        settings = parse_object(text)
    except (ValueError, RecursionError):
        settings = {}
    if not settings or not all(isinstance(each, dict) for each in settings.values()):
        raise OptionError(
            "without option topic, expected offsets must be 'end', 'none' or a JSON object with the offsets of each "
            'topic, such as {"flights": {"0": 17, "3": null}}; the value is none of these. Nothing was appended.'
        )
    return {topic: json.dumps(offsets) for topic, offsets in settings.items()}
