"""The one table of options: all that is parsed, refused and documented comes from it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.plan import ExpectedOffsets
from spark_cas.log.loading import FENCED_WAIT_SECONDS

MAX_BYTES_PER_CHUNK = 64 * 1024 * 1024
"""A chunk is one PUT, and its bytes are in memory while it is made."""

_MAX_INT = 2**31 - 1


class Scope(Enum):
    """Who takes an option."""

    READ = "read"
    WRITE = "write"
    ROUTE = "route"


EVERYWHERE = frozenset(Scope)
READING = frozenset({Scope.READ})
WRITING = frozenset({Scope.WRITE})
# route takes a dict of the options that the write takes, so that one dict serves both.
WRITING_AND_ROUTING = frozenset({Scope.WRITE, Scope.ROUTE})


@dataclass(frozen=True, slots=True)
class Option:
    """An option, and what a person has to know of it."""

    name: str
    parse: Callable[[str], object]
    """Raises ValueError saying what was expected: never what was given, which may be secret."""
    default: str | None
    """As a user would write it; None when there is none."""
    scopes: frozenset[Scope]
    per_log: bool
    """Whether the file of per-log defaults may give it."""
    doc: str


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


_LIMITS = ChunkLimits()

OPTIONS: tuple[Option, ...] = (
    Option(
        "path",
        text,
        None,
        EVERYWHERE,
        per_log=False,
        doc="Where the log is: a directory, or a URL such as `s3://bucket/logs/flights`. Given by `save(path)`, "
        "`load(path)` or SQL's `WITH (path='...')`.",
    ),
    Option(
        "job",
        text,
        None,
        WRITING_AND_ROUTING,
        per_log=False,
        doc="The identity of the load: a write with the same job resumes it and appends nothing twice. Without "
        "it a fresh name is made, and a re-run is not recognised.",
    ),
    Option(
        "expectedOffsets",
        ExpectedOffsets.parse,
        "end",
        WRITING_AND_ROUTING,
        per_log=False,
        doc="What the write expects each partition to end at: `end` (as found when the plan is made, which Spark "
        "lets happen when the routed rows are ready; name offsets to claim an earlier moment), `none` (no "
        'check: others may append in between), or JSON such as `{"0": 17, "3": null}`, where partitions '
        "that are not named are taken at their end and null asks for no check.",
    ),
    Option(
        "partitions",
        whole_number(100_000),
        None,
        WRITING_AND_ROUTING,
        per_log=True,
        doc="The partition count of a log that does not exist yet: the write creates it. Given for a log that "
        "exists, it must be that log's count; as a per-log default it counts for new logs only.",
    ),
    Option(
        "maxRecordsPerChunk",
        whole_number(),
        str(_LIMITS.max_records),
        WRITING_AND_ROUTING,
        per_log=True,
        doc="The most records of one atomic append to one partition.",
    ),
    Option(
        "maxBytesPerChunk",
        whole_number(MAX_BYTES_PER_CHUNK),
        str(_LIMITS.max_bytes),
        WRITING_AND_ROUTING,
        per_log=True,
        doc="The most bytes of one atomic append to one partition, at most 64 MiB. A record above it is refused.",
    ),
    Option(
        "maxSecondsPerChunk",
        seconds,
        f"{_LIMITS.max_seconds:g}",
        WRITING_AND_ROUTING,
        per_log=True,
        doc="How long rows wait for their chunk to fill: it is appended with the next rows that come later.",
    ),
    Option(
        "routed",
        flag,
        "false",
        WRITING_AND_ROUTING,
        per_log=False,
        doc="`true` says that all rows of each log partition lie in one task although `spark_cas.route` did not "
        "put them there. It is checked while writing.",
    ),
    Option(
        "fencedWaitMs",
        whole_number(),
        f"{FENCED_WAIT_SECONDS * 1000:.0f}",
        WRITING_AND_ROUTING,
        per_log=True,
        doc="How long an attempt of a task that another attempt overtook waits for news of that other one, in "
        "milliseconds.",
    ),
    Option(
        "includeHeaders",
        flag,
        "false",
        READING,
        per_log=True,
        doc="`true` adds the column `headers`.",
    ),
    Option(
        "view",
        one_of("records", "offsets", "progress"),
        "records",
        READING,
        per_log=False,
        doc="`records`; or `offsets`, a row per partition, whose `end_offset` is what the next conditional write "
        "expects; or `progress`, a row per job and partition.",
    ),
    Option(
        "conf",
        text,
        None,
        EVERYWHERE,
        per_log=False,
        doc='A TOML file of defaults: `[defaults]`, and `[logs."<name or path>"]` for one log. Read once, on the '
        "driver. Without it the environment variable `SPARK_CAS_CONF` names the file.",
    ),
)

BY_KEY = {option.name.lower(): option for option in OPTIONS}
"""Options as they arrive from Spark: in lower case."""
