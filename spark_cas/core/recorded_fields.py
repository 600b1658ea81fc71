"""Stored JSON of dataclasses, one line each: plans, ledger entries, completions, locks and layouts.

Another program may have written the JSON, so each field is checked against its annotated type.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from spark_cas.core.errors import FormatError

INVALID_FIELDS = (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError)
"""The errors of parsing JSON and building a dataclass from it, if the text is not in the expected format."""

_Value = TypeVar("_Value")


def to_json(value: Any) -> str:  # noqa: ANN401 - a dataclass
    """Return a value as one line of JSON, for the registry and the ledger."""
    return json.dumps(asdict(value), sort_keys=True, separators=(",", ":"))


def from_json(kind: type[_Value], text: str | bytes) -> _Value:
    """Parse the output of `to_json`; raise one of `INVALID_FIELDS` for other text."""
    return from_fields(kind, json.loads(text))


def recorded(kind: type[_Value], text: str, job: str) -> _Value:
    """Parse the recorded plan or completion of a job; raise FormatError if the text is another value."""
    with in_format(f"the {kind.__name__.lower()} of job {job!r} in the registry"):
        return from_json(kind, text)


@contextmanager
def in_format(subject: str) -> Iterator[None]:
    """Raise FormatError if the block, which parses a stored value, finds another format."""
    try:
        yield
    except INVALID_FIELDS:
        raise FormatError(
            f"{subject} is not in the format of this spark_cas: a newer version or another program wrote it. Use the "
            f"version that wrote it, or a newer one."
        ) from None


def from_fields(kind: type[_Value], fields: object) -> _Value:
    """Return a dataclass instance from the fields of its JSON; raise one of `INVALID_FIELDS` for other fields.

    It supports int, str, bool, None, literals, optional values, tuples, dicts by int, and dataclasses of these. A
    bool is not an int. A field that is missing gets its default.
    """
    hint: Any = kind
    value: _Value = _reader_of(hint)(fields)
    return value


@cache
def _reader_of(hint: Any) -> Callable[[Any], Any]:  # noqa: ANN401, PLR0911 - any annotation, one for each kind
    """Return a function that converts a value of JSON to this type."""
    arguments = get_args(hint)
    if get_origin(hint) is Literal:
        return lambda value: arguments[arguments.index(value)]
    if get_origin(hint) in (Union, UnionType):
        (read,) = (_reader_of(each) for each in arguments if each is not NoneType)
        return lambda value: None if value is None else read(value)
    if get_origin(hint) is tuple and arguments[-1] is Ellipsis:
        return _reader_of_tuple(arguments[0])
    if get_origin(hint) is tuple:
        elements = [_reader_of(each) for each in arguments]
        return lambda value: tuple(read(each) for read, each in zip(elements, _typed(value, list), strict=True))
    if get_origin(hint) is dict:
        read = _reader_of(arguments[1])
        return lambda value: {int(number): read(each) for number, each in _typed(value, dict).items()}
    if is_dataclass(hint):
        kind: Any = hint
        fields = {name: _reader_of(each) for name, each in get_type_hints(kind).items()}
        return lambda value: kind(**{name: fields[name](each) for name, each in _typed(value, dict).items()})
    return lambda value: _typed(value, hint)


def _reader_of_tuple(hint: Any) -> Callable[[Any], Any]:  # noqa: ANN401 - any annotation
    plain = frozenset() if get_origin(hint) is tuple else frozenset(get_args(hint) or (hint,))
    read = _reader_of(hint)

    def read_tuple(value: object) -> tuple[Any, ...]:
        elements = _typed(value, list)
        # Check the types of offsets at once, because a plan has one for each partition.
        return tuple(elements) if plain.issuperset(map(type, elements)) else tuple(map(read, elements))

    return read_tuple


def _typed(value: Any, kind: type) -> Any:  # noqa: ANN401 - a value of JSON
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}")
    return value
