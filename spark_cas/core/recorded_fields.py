"""Check values from stored JSON, which another program may have written, against the types of their dataclass."""

from collections.abc import Callable
from dataclasses import is_dataclass
from functools import cache
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

INVALID_FIELDS = (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError)
"""The errors of parsing JSON and building a dataclass from it, if the text is not in the expected format."""

_PLAIN = (bool, int, str)

_Value = TypeVar("_Value")


def require_types(value: _Value) -> _Value:
    """Return a dataclass instance whose fields have the annotated types; raise TypeError for another one.

    It supports int, str, bool, None, unions, tuples and dataclasses of these. A bool is not an int.
    """
    kind: Any = type(value)
    if not _check_of(kind)(value):
        msg = f"a field of {type(value).__name__} has another type than expected"
        raise TypeError(msg)
    return value


@cache
def _check_of(hint: Any) -> Callable[[Any], bool]:  # noqa: ANN401 - any annotation
    arguments = get_args(hint)
    if get_origin(hint) is UnionType:
        choices = [_check_of(each) for each in arguments]
        return lambda value: any(fits(value) for fits in choices)
    if get_origin(hint) is tuple and arguments[-1] is Ellipsis:
        element = _check_of(arguments[0])
        return lambda value: type(value) is tuple and all(map(element, value))
    if get_origin(hint) is tuple:
        elements = [_check_of(each) for each in arguments]
        return lambda value: (
            type(value) is tuple
            and len(value) == len(elements)
            and all(fits(each) for fits, each in zip(elements, value, strict=True))
        )
    if is_dataclass(hint):
        return _check_of_fields(hint)
    return lambda value: type(value) is hint


def _check_of_fields(kind: Any) -> Callable[[Any], bool]:  # noqa: ANN401 - a dataclass
    hints = get_type_hints(kind)
    plain = {name: hint for name, hint in hints.items() if hint in _PLAIN}
    other = [(name, _check_of(hint)) for name, hint in hints.items() if hint not in _PLAIN]
    types = [*plain.values()]

    def fits_fields(value: object) -> bool:
        if type(value) is not kind or [type(getattr(value, name)) for name in plain] != types:
            return False
        return all(fits(getattr(value, name)) for name, fits in other)

    return fits_fields
