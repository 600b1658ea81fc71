"""What an option is, and the parsers of its values. They never show what was given, which may be secret."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

_MAX_INT = 2**31 - 1
_TOPIC = re.compile(r"[A-Za-z0-9._-]+")


class Scope(Enum):
    """Who takes an option."""

    READ = "read"
    WRITE = "write"
    ROUTE = "route"


EVERYWHERE = frozenset(Scope)
READING = frozenset({Scope.READ})
# route takes a dict of the options that the write takes, so that one dict serves both.
WRITING_AND_ROUTING = frozenset({Scope.WRITE, Scope.ROUTE})


@dataclass(frozen=True, slots=True)
class Option:
    """An option, and what a person has to know of it."""

    name: str
    parse: Callable[[str], object]
    """Raises ValueError saying what was expected: never what was given."""
    default: str | None
    """As a user would write it; None when there is none."""
    scopes: frozenset[Scope]
    per_log: bool
    """Whether the file of per-log defaults may give it."""
    doc: str
    kafka_only: bool = False
    """Whether it means nothing for a log in a directory or object store."""


def whole_number(most: int = _MAX_INT) -> Callable[[str], int]:
    """A parser of whole numbers from 1 to ``most``."""

    def parse(text: str) -> int:
        stripped = text.strip()
        if not (stripped.isascii() and stripped.isdigit()) or not 1 <= int(stripped) <= most:
            raise ValueError(f"a whole number from 1 to {most}")
        return int(stripped)

    return parse


def seconds(text: str) -> float:
    """Seconds above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ValueError("a number of seconds above 0")
    return value


def flag(text: str) -> bool:
    """``true`` or ``false``."""
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.strip().lower() == "true"


def one_of(*choices: str) -> Callable[[str], str]:
    """A parser of one of a few words."""

    def parse(text: str) -> str:
        if text.strip().lower() not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return text.strip().lower()

    return parse


def text(value: str) -> str:
    """Any text that is not blank."""
    if not value.strip():
        raise ValueError("not empty")
    return value


def one_topic(value: str) -> str:
    """The name of one topic: no list, no pattern."""
    if _TOPIC.fullmatch(value.strip()) is None:
        raise ValueError(
            "the name of one topic (A-Z a-z 0-9 . _ -), and no list or pattern: read topics one by one and union "
            "them, write them one by one"
        )
    return value.strip()
