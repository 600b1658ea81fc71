"""The options of a read, a write or `route`: checked names, parsed values, and the defaults of the log."""

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from spark_cas.core.errors import OptionError
from spark_cas.log.kafka.settings.client_settings import holds_instead, log_ignored
from spark_cas.log.open import AnySpec, parse_address, with_settings
from spark_cas.options.option_names import (
    KAFKA,
    STORE,
    check_defaults,
    check_name,
    fits,
    has_no_effect,
    is_for,
    settings_of,
    unused_by,
)
from spark_cas.options.request import NO_ADDRESS, Selection, selection_of
from spark_cas.options.table import BY_KEY, SERVERS, Scope

VARIABLE = "SPARK_CAS_CONF"
"""The environment variable with the path of the file of per-log defaults."""

_T = TypeVar("_T")
_Table = dict[str, str]

# CREATE TABLE adds `location`, `owner`, `provider`, each option again as `option.<name>`, and paths.
_FROM_CATALOG = frozenset({"location", "owner", "provider"})
_FROM_CATALOG_PREFIXES = ("option.", "file:/")


class OptionValues:
    """The explicit options with checked names, and the defaults of the log for the others.

    With several scopes, an option is valid if any of them accepts it, for a caller that does not know its scope yet.

    Args:
        options: The options as Spark passes them.
        scopes: The uses that accept options.

    Raises:
        OptionError: An option is unknown or malformed, or does not apply to the backend of the log.
    """

    def __init__(self, options: Mapping[str, str], *scopes: Scope) -> None:
        values = {key.lower(): value for key, value in options.items()}
        values = {
            key: value
            for key, value in values.items()
            if key not in _FROM_CATALOG and not key.startswith(_FROM_CATALOG_PREFIXES)
        }
        unused = unused_by(*scopes)
        self._unused = {key: unused[key] for key in values if key in unused}
        # One dict of options serves reads and writes.
        self.explicit = {
            key: value for key, value in values.items() if key not in unused and not has_no_effect(key, *scopes)
        }
        _take_only_path(self.explicit)
        for key in self.explicit:
            check_name(key, *scopes)
        selection = selection_of(
            self.get("path", str),
            self.get(SERVERS, str),
            topic=self.get("topic", str),
            subscribe=self.get("subscribe", tuple),
            pattern=self.get("subscribePattern", str),
            assign=self.get("assign", tuple),
        )
        one = selection.spec if selection is not None and len(selection.topics) == 1 else None
        defaults = _per_log_defaults(self.get("conf", str), one)
        if selection is not None:
            _refuse_misfits(self.explicit, on_kafka=selection.spec.has_brokers)
        self.merged = {**{key: defaults[key] for key in defaults if is_for(key, *scopes)}, **self.explicit}
        self._selection = selection and replace(selection, spec=self._with_settings(selection.spec))

    def get(self, name: str, kind: type[_T], *, explicit: bool = True) -> _T | None:
        """Return the parsed value of an option, its default, or None if it has neither.

        Args:
            name: The name of the option.
            kind: The type of the value.
            explicit: Whether to ignore the defaults of the log.

        Raises:
            OptionError: The value is malformed.
            TypeError: The option has another type.
        """
        values = self.explicit if explicit else self.merged
        option = BY_KEY[name.lower()]
        value = values.get(name.lower(), option.default)
        if value is None:
            return None
        try:
            result = option.parse(value)
        except OptionError:
            raise
        except ValueError as expected:
            raise OptionError(
                f"option {option.name} must be {expected}, but has another value. See docs/options.md."
            ) from None
        if not isinstance(result, kind):
            msg = f"option {option.name} is of another type than {kind.__name__}"
            raise TypeError(msg)
        return result

    def need(self, name: str, kind: type[_T]) -> _T:
        """Return the parsed value of an option; raise OptionError if it has neither a value nor a default."""
        value = self.get(name, kind, explicit=False)
        if value is None:
            raise OptionError(f"option {name} is missing.")
        return value

    def need_selection(self) -> Selection:
        """Return the addresses of the logs; raise OptionError if no option names one."""
        if self._selection is None:
            raise OptionError(NO_ADDRESS)
        return self._selection

    def need_spec(self) -> AnySpec:
        """Return the address of the log; raise OptionError if the options name none or several."""
        return self.need_selection().only()

    def log_unused(self) -> None:
        """Log a warning for each option without an effect, once per process."""
        for key, instead in self._unused.items():
            log_ignored(key, instead)
        if self._selection is not None and self._selection.spec.has_brokers:
            for name, value in settings_of(self.merged, KAFKA).items():
                held = holds_instead(name, value)
                if held is not None:
                    log_ignored(KAFKA + name, held)

    def _with_settings(self, address: AnySpec) -> AnySpec:
        return with_settings(
            address,
            settings_of(self.merged, KAFKA if address.has_brokers else STORE),
            prefix=self.need("idPrefix", str),
            token_provider=self.get("tokenProvider", str, explicit=False),
            open_transaction_wait_ms=self.need("openTransactionWaitMs", int),
            transaction_timeout_ms=self.need("transactionTimeoutMs", int),
        )


def _take_only_path(options: dict[str, str]) -> None:
    """Replace ``paths``, the JSON list of ``load([...])``, with ``path``; raise OptionError for several paths."""
    paths = options.pop("paths", None)
    if paths is None:
        return
    try:
        (options["path"],) = json.loads(paths)
    except (TypeError, ValueError):
        raise OptionError("one log is read at a time: load takes one path. Read each log, then union them.") from None


def _refuse_misfits(explicit: Mapping[str, str], *, on_kafka: bool) -> None:
    """Raise OptionError for an option that does not apply to the log's backend."""
    kind, other = ("logs in an object store", "a topic") if on_kafka else ("topics", "no topic")
    for key in explicit:
        if not fits(key, on_kafka=on_kafka):
            name = BY_KEY[key].name if key in BY_KEY else key
            raise OptionError(f"option {name} is for {kind}, and this log is {other}. Leave it out.")


def _per_log_defaults(conf: str | None, spec: AnySpec | None) -> _Table:
    """Return the defaults of a log from a TOML file, only ``[defaults]`` without a log; raise OptionError if invalid.

    A table named as the log's address overrides one named as the log, and both override ``[defaults]``. Names are in
    lower case, and values are text.
    """
    file = conf or os.environ.get(VARIABLE)
    if not file:
        return {}
    general, logs = _tables(Path(file).expanduser())
    for table in (general, *logs.values()):
        check_defaults(table)
    result = dict(general)
    if spec is not None:
        result |= logs.get(spec.topic, {})
        for name, table in logs.items():
            if _is_address(name, spec):
                result |= table
    return result


def _tables(file: Path) -> tuple[_Table, dict[str, _Table]]:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise OptionError(
            f"the file of per-log defaults, which the option conf or the environment variable {VARIABLE} names, "
            f"does not exist on the driver, cannot be read, or is not TOML. Correct its path, rights or content."
        ) from None
    defaults, logs = document.pop("defaults", {}), document.pop("logs", {})
    tables = isinstance(logs, dict) and all(isinstance(each, dict) for each in (defaults, *logs.values()))
    if document or not tables:
        raise OptionError(
            'the file of per-log defaults may contain only the tables [defaults] and [logs."<name>"]. Move all other '
            "settings into these tables."
        )
    return _flat(defaults), {name: _flat(table) for name, table in logs.items()}


def _flat(table: Mapping[str, object], prefix: str = "") -> _Table:
    """Flatten nested tables: TOML parses ``store.aws_region = "x"`` as a table within a table."""
    flat: _Table = {}
    for name, value in table.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name.lower()}.")
        else:
            flat[prefix + name.lower()] = str(value)
    return flat


def _is_address(name: str, spec: AnySpec) -> bool:
    # A name without a slash is the log's name, not a directory below the driver's working directory.
    if "/" not in name:
        return False
    try:
        return parse_address(name).url == spec.url
    except OptionError:
        return False
