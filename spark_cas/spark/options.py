"""From Spark's options, all text and in lower case, to values: parsed once, at the edge."""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar, cast

from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.errors import OptionError
from spark_cas.core.names import check_name
from spark_cas.core.plan import ExpectedOffsets
from spark_cas.log.planning import fresh_job_name
from spark_cas.log.spec import LogSpec
from spark_cas.spark.conf import per_log_defaults
from spark_cas.spark.option_table import BY_KEY, OPTIONS, Scope
from spark_cas.spark.store_options import PREFIX, STORE_OPTIONS

_T = TypeVar("_T")

# What CREATE TABLE adds: `location`, `owner`, `provider`, each option again as `option.<name>`, and paths.
_FROM_CATALOG = frozenset({"location", "owner", "provider"})
_FROM_CATALOG_PREFIXES = ("option.", "file:/")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a read was asked for."""

    spec: LogSpec
    view: str
    """``records``, ``offsets`` or ``progress``."""
    include_headers: bool


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What a write was asked for."""

    spec: LogSpec
    job: str
    expected_offsets: ExpectedOffsets
    partitions: int | None
    """The count that the user says the log has."""
    new_partitions: int | None
    """The count that a new log gets: that above, or the default of the log."""
    limits: ChunkLimits
    routed: bool
    fenced_wait_ms: int


@dataclass(frozen=True, slots=True)
class RouteOptions:
    """What a route was asked for: a dict of the write's options."""

    path: str
    job: str | None
    partitions: int | None
    new_partitions: int | None
    reading: tuple[tuple[str, str], ...]
    """The options with which the same log is read."""


class _Given:
    """The options that were given to one scope, checked by name; the values of the log's defaults below them."""

    def __init__(self, options: Mapping[str, str], scope: Scope) -> None:
        self.explicit = {key.lower(): value for key, value in options.items() if not _is_catalogs(key.lower())}
        _take_only_path(self.explicit)
        for key in self.explicit:
            _check_name(key, scope)
        self.spec = self._parse_spec() if "path" in self.explicit else None
        defaults, tables = per_log_defaults(self.get("conf", str), self.spec)
        for table in tables:
            _check_defaults(table)
        self.merged = {**{key: defaults[key] for key in defaults if _is_for(key, scope)}, **self.explicit}
        if self.spec is not None:
            self.spec = LogSpec(self.spec.url, self._store_options())

    def get(self, name: str, _: type[_T], *, explicit: bool = True) -> _T | None:
        """The parsed value of an option that was given explicitly; None when it was not."""
        given = self.explicit if explicit else self.merged
        option = BY_KEY[name.lower()]
        value = given.get(name.lower(), option.default)
        if value is None:
            return None
        try:
            return cast("_T", option.parse(value))
        except OptionError:
            raise
        except ValueError as expected:
            raise OptionError(
                f"option {option.name} must be {expected}; what was given is not. See docs/options.md."
            ) from None

    def need(self, name: str, kind: type[_T]) -> _T:
        """The parsed value of an option that has one in any case."""
        value = self.get(name, kind, explicit=False)
        if value is None:
            raise OptionError(f"option {name} is missing.")
        return value

    def need_spec(self) -> LogSpec:
        """The log's address; OptionError showing how to give it."""
        if self.spec is None:
            raise OptionError(
                "there is no path, which says where the log is. Give it as load('/data/logs/flights') or "
                "save('/data/logs/flights'); in SQL, where a table keeps no options, at each use: "
                "SELECT * FROM t WITH (path='/data/logs/flights'), INSERT INTO t WITH (path='/data/logs/flights', "
                "job='load-1') SELECT ..."
            )
        return self.spec

    def _parse_spec(self) -> LogSpec:
        spec = LogSpec.parse(self.get("path", str) or "")
        if spec.scheme == "memory":
            raise OptionError(
                "a log in memory lives in one process, and Spark's tasks run in others. Give a directory or the "
                "URL of an object store."
            )
        check_name(spec.topic, "the last part of a log's address")
        return spec

    def _store_options(self) -> tuple[tuple[str, str], ...]:
        return tuple(
            sorted((key.removeprefix(PREFIX), value) for key, value in self.merged.items() if key.startswith(PREFIX))
        )


def check_read(options: Mapping[str, str]) -> tuple[str, bool]:
    """The view and whether headers are asked for. Does without a path, for CREATE TABLE."""
    given = _Given(options, Scope.READ)
    return given.need("view", str), given.need("includeHeaders", bool)


def parse_read(options: Mapping[str, str]) -> ReadOptions:
    """Read the options of a read; OptionError for any that is unknown, malformed or missing."""
    given = _Given(options, Scope.READ)
    return ReadOptions(given.need_spec(), given.need("view", str), given.need("includeHeaders", bool))


def parse_write(options: Mapping[str, str]) -> WriteOptions:
    """Read the options of a write; OptionError for any that is unknown, malformed or missing."""
    given = _Given(options, Scope.WRITE)
    job = given.get("job", str)
    return WriteOptions(
        spec=given.need_spec(),
        job=fresh_job_name() if job is None else check_name(job, "option job"),
        expected_offsets=given.need("expectedOffsets", ExpectedOffsets),
        partitions=given.get("partitions", int),
        new_partitions=given.get("partitions", int, explicit=False),
        limits=ChunkLimits(
            given.need("maxRecordsPerChunk", int),
            given.need("maxBytesPerChunk", int),
            given.need("maxSecondsPerChunk", float),
        ),
        routed=given.need("routed", bool),
        fenced_wait_ms=given.need("fencedWaitMs", int),
    )


def parse_route(options: Mapping[str, str]) -> RouteOptions:
    """Read the options that a write takes, as far as routing needs them."""
    given = _Given(options, Scope.ROUTE)
    path = given.get("path", str)
    if path is None:
        raise OptionError(
            "route needs the path of the log: route(df, '/data/logs/flights') or "
            "route(df, {'path': '/data/logs/flights', 'job': 'load-1'})."
        )
    reading = {key: value for key, value in given.explicit.items() if key == "conf" or key.startswith(PREFIX)}
    return RouteOptions(
        path=path,
        job=given.get("job", str),
        partitions=given.get("partitions", int),
        new_partitions=given.get("partitions", int, explicit=False),
        reading=tuple(sorted(reading.items())),
    )


def _is_catalogs(key: str) -> bool:
    return key in _FROM_CATALOG or key.startswith(_FROM_CATALOG_PREFIXES)


def _take_only_path(options: dict[str, str]) -> None:
    """``load([...])`` gives ``paths``, a JSON list: one path is as good as ``path``, several are no log."""
    paths = options.pop("paths", None)
    if paths is None:
        return
    listed = json.loads(paths)
    if len(listed) != 1:
        raise OptionError("one log is read at a time: load takes one path. Read each log, then union them.")
    options["path"] = listed[0]


def _is_for(key: str, scope: Scope) -> bool:
    return key.startswith(PREFIX) or scope in BY_KEY[key].scopes


def _check_name(key: str, scope: Scope) -> None:
    """OptionError unless the scope has this option."""
    if key.startswith(PREFIX):
        _check_store_name(key)
        return
    option = BY_KEY.get(key)
    if option is not None and scope in option.scopes:
        return
    if option is not None:
        takers = " and ".join(sorted(each.value for each in option.scopes))
        raise OptionError(f"option {option.name} is one of {takers}, not of {scope.value}. Leave it out here.")
    known = {each.name.lower(): each.name for each in OPTIONS if scope in each.scopes}
    raise OptionError(f"there is no option {key!r}.{_nearest(key, known)}")


def _check_store_name(key: str) -> None:
    name = key.removeprefix(PREFIX)
    if name not in STORE_OPTIONS:
        known = {PREFIX + each: PREFIX + each for each in STORE_OPTIONS}
        raise OptionError(f"there is no option {key!r}, or it may not be set.{_nearest(key, known)}")


def _check_defaults(table: Mapping[str, str]) -> None:
    known = {each.name.lower(): each.name for each in OPTIONS if each.per_log}
    for key in table:
        if key.startswith(PREFIX):
            _check_store_name(key)
        elif key in BY_KEY and not BY_KEY[key].per_log:
            raise OptionError(f"the file of per-log defaults may not set {BY_KEY[key].name}: give it as an option.")
        elif key not in known:
            raise OptionError(f"the file of per-log defaults sets {key!r}: no such option.{_nearest(key, known)}")


def _nearest(key: str, known: Mapping[str, str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    hint = f" Did you mean {known[near[0]]}?" if near else ""
    return f"{hint} docs/options.md lists all."
