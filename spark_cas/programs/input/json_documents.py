"""Strict JSON parser that preserves the original text."""

import json
import re
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeAlias

_SPACES = re.compile(r"[ \t\n\r]*")
_STEP = re.compile(r"""\.(?P<name>[^.\[\]'"\s]+)|\['(?P<quoted>[^']+)'\]|\[(?P<index>[0-9]+)\]""")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")

_MAX_NUMBER, _MAX_NAME, _MAX_TEXT = 1000, 50_000, 20_000_000
"""Limits of Jackson, the parser that Spark uses, in characters."""
_MAX_DEPTH = 60
"""Arrow stores at most 64 levels of columns in a batch. Jackson allows 1000."""

Step = str | int
Json: TypeAlias = "str | bool | dict[str, Json] | list[Json] | None"
"""A value of a document. Numbers are `Number`."""


class Number(str):
    """A number as its original text."""

    __slots__ = ()


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("an object has the same name twice")
    return result


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no value of JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_reject_constant, parse_int=Number, parse_float=Number
)
_SKIPPER = json.JSONDecoder(parse_int=Number, parse_float=Number)


def parse_document(text: str, start: int = 0) -> tuple[Json, int]:
    """Return the document at a position and its end position. Numbers are returned as text.

    Raises ValueError if the text is not valid JSON.
    """
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg[:1].lower()}{error.msg[1:]} at character {error.pos - start + 1}") from None
    except RecursionError:
        raise ValueError("the document is nested too deeply") from None
    if _SURROGATE.search(text, start, end):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("a text has half of a surrogate pair, which is no character") from None
    return value, end


def parse_line(line: str) -> Json:
    """Return the only document of a line without surrounding spaces. Raises ValueError if there is more text."""
    value, end = parse_document(line)
    if end != len(line):
        raise ValueError(f"text follows the document, at character {end + 1}")
    return value


def documents_of(text: str) -> list[tuple[int, int, Json]]:
    """Return start, end and value of the document in a text, or of each element if it is an array.

    Raises ValueError if the text is not valid.
    """
    start = _after_spaces(text, 0)
    if text.startswith("[", start):
        documents, end = _elements(text, start, parse_document)
    else:
        value, end = parse_document(text, start)
        documents = [(start, end, value)]
    end = _after_spaces(text, end)
    if end != len(text):
        raise ValueError(f"text follows the document, at character {end + 1}")
    return documents


def parse_path(path: str) -> list[Step]:
    """Parse a path such as `$.customer['first name'].ids[0]` into steps. Raises ValueError if it is invalid."""
    steps: list[Step] = []
    position = 1
    while path.startswith("$") and (step := _STEP.match(path, position)):
        steps.append(int(step["index"]) if step["index"] else step["name"] or step["quoted"])
        position = step.end()
    if not path.startswith("$") or position != len(path):
        raise ValueError(path)
    return steps


def text_at(document: str, value: Json, steps: Sequence[Step]) -> str | None:
    """Return the text of a value in a parsed document; None if the value is null or absent.

    A string is returned without quotes and escapes, any other value as in the document.
    """
    for step in steps:
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step)
        elif isinstance(step, int) and isinstance(value, list) and step < len(value):
            value = value[step]
        else:
            return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return _source(document, steps) if isinstance(value, dict | list) else value


def beyond_limits(document: str, value: Json) -> str | None:
    """Return why Spark's reader cannot return the fields of a document, None if it can.

    Its schema inference skips a document beyond these limits without an error.
    """
    if len(document) <= _MAX_NUMBER and document.count("[") + document.count("{") <= _MAX_DEPTH:
        return None
    level: list[Json] = [value]
    for _ in range(_MAX_DEPTH):
        below: list[Json] = []
        for each in level:
            if isinstance(each, dict):
                if any(len(name) > _MAX_NAME for name in each):
                    return f"a name has more than {_MAX_NAME} characters"
                below += each.values()
            elif isinstance(each, list):
                below += each
            elif isinstance(each, Number) and len(each) > _MAX_NUMBER:
                return f"a number has more than {_MAX_NUMBER} digits"
            elif isinstance(each, str) and len(each) > _MAX_TEXT:
                return f"a text has more than {_MAX_TEXT} characters"
        if not below:
            return None
        level = below
    return f"the document has more than {_MAX_DEPTH} levels"


def compact(value: Json) -> str:
    """Return a value as JSON without spaces. Numbers keep their text."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{compact(name)}:{compact(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(compact, value)) + "]"
    if isinstance(value, Number):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def _source(document: str, steps: Sequence[Step]) -> str:
    """Return the original text of the object or array at a path."""
    start = _after_spaces(document, 0)
    for step in steps:
        if isinstance(step, str):
            start = _member(document, start, step)
        else:
            start = _elements(document, start, _SKIPPER.raw_decode)[0][step][0]
    return document[start : _SKIPPER.raw_decode(document, start)[1]]


def _member(text: str, start: int, name: str) -> int:
    """Return the start position of the value of an object's member."""
    position = start
    while True:
        key, position = _SKIPPER.raw_decode(text, _after_spaces(text, position + 1))  # after a brace or a comma
        position = _after_spaces(text, _after_spaces(text, position) + 1)  # after the colon
        if key == name:
            return position
        _, position = _SKIPPER.raw_decode(text, position)
        position = _after_spaces(text, position)


def _elements(
    text: str, start: int, parse: Callable[[str, int], tuple[Json, int]]
) -> tuple[list[tuple[int, int, Json]], int]:
    """Return start, end and value of each element of an array, and the end of the array."""
    elements: list[tuple[int, int, Json]] = []
    position = _after_spaces(text, start + 1)
    if text.startswith("]", position):
        return elements, position + 1
    while True:
        value, end = parse(text, position)
        elements.append((position, end, value))
        position = _after_spaces(text, end)
        if text.startswith("]", position):
            return elements, position + 1
        if not text.startswith(",", position):
            raise ValueError(f"expected a comma or the end of the array at character {position + 1}")
        position = _after_spaces(text, position + 1)


def _after_spaces(text: str, position: int) -> int:
    spaces = _SPACES.match(text, position)
    return position if spaces is None else spaces.end()
