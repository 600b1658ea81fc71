"""The options of a write whose column `topic` names the topic of each row, because no option names one."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from spark_cas.core.errors import ConditionalLogError, Fields, OptionError
from spark_cas.options.request import WriteRequest
from spark_cas.options.table import SERVERS, one_topic

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
    """Parse the options for each topic.

    Args:
        options: The options of the write, which name no topic.
        topics: The topics of the rows.
        parse: Parses the options of one topic.

    Returns:
        The request by topic, sorted. They include the topics that only ``expectedOffsets`` names.

    Raises:
        OptionError: An option is invalid, or does not apply to several topics.
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
        _check_name(topic)
        own = {_EXPECTED: offsets[topic]} if topic in offsets else {}
        with of_topic(topic):
            parsed[topic] = parse({**common, **own, "topic": topic})
    for topic, each in parsed.items():
        if each.whole:
            raise OptionError(
                f"topic {topic}: atomic=load, given or a default of the log, is for one topic, and the column topic "
                f"can name several. Nothing was appended. {_ONE_TOPIC}"
            )
    return parsed


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


def _check_name(topic: str) -> None:
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
        settings = json.loads(text, object_pairs_hook=_each_once)
    except (ValueError, RecursionError):
        settings = None
    if (
        not isinstance(settings, dict)
        or not settings
        or not all(isinstance(each, dict) for each in settings.values())
    ):
        raise OptionError(
            "without option topic, expected offsets must be 'end', 'none' or a JSON object with the offsets of each "
            'topic, such as {"flights": {"0": 17, "3": null}}; the value is none of these. Nothing was appended.'
        )
    return {topic: json.dumps(offsets) for topic, offsets in settings.items()}


def _each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("a name is there twice")
    return result
