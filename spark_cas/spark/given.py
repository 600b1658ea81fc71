"""The options that were given to a read, a write or `route`: their names, their values, the defaults below them."""

import json
from collections.abc import Mapping
from typing import TypeVar, cast

from spark_cas.core.errors import OptionError
from spark_cas.log.kafka.spec import KafkaSpec
from spark_cas.log.open import AnySpec
from spark_cas.spark.addressing import NO_ADDRESS, address_of, with_settings
from spark_cas.spark.conf import per_log_defaults
from spark_cas.spark.option import Scope
from spark_cas.spark.option_names import KAFKA, check_defaults, check_name, fits, is_for, settings_of
from spark_cas.spark.option_table import BY_KEY, SERVERS
from spark_cas.spark.store_options import PREFIX as STORE

_T = TypeVar("_T")

# What CREATE TABLE adds: `location`, `owner`, `provider`, each option again as `option.<name>`, and paths.
_FROM_CATALOG = frozenset({"location", "owner", "provider"})
_FROM_CATALOG_PREFIXES = ("option.", "file:/")


class Given:
    """The options that were given to one scope, checked by name; the values of the log's defaults below them."""

    def __init__(self, options: Mapping[str, str], scope: Scope) -> None:
        self.explicit = {key.lower(): value for key, value in options.items() if not _is_catalogs(key.lower())}
        _take_only_path(self.explicit)
        for key in self.explicit:
            check_name(key, scope)
        address = address_of(*(self.get(name, str) for name in ("path", SERVERS, "topic", "subscribe")))
        defaults, tables = per_log_defaults(self.get("conf", str), address)
        for table in tables:
            check_defaults(table)
        if address is not None:
            _refuse_misfits(self.explicit, on_kafka=isinstance(address, KafkaSpec))
        self.merged = {**{key: defaults[key] for key in defaults if is_for(key, scope)}, **self.explicit}
        self._spec = None if address is None else self._with_settings(address)

    def get(self, name: str, _: type[_T], *, explicit: bool = True) -> _T | None:
        """The parsed value of an option that was given explicitly, or its default; None when it has none."""
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

    def need_spec(self) -> AnySpec:
        """Where the log is; OptionError showing how to say it."""
        if self._spec is None:
            raise OptionError(NO_ADDRESS)
        return self._spec

    def _with_settings(self, address: AnySpec) -> AnySpec:
        return with_settings(
            address,
            settings_of(self.merged, KAFKA if isinstance(address, KafkaSpec) else STORE),
            prefix=self.need("idPrefix", str),
            claim_timeout_ms=self.need("claimTimeoutMs", int),
            transaction_timeout_ms=self.need("transactionTimeoutMs", int),
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


def _refuse_misfits(explicit: Mapping[str, str], *, on_kafka: bool) -> None:
    """OptionError for an option that means nothing on the log's backend."""
    kind, other = ("logs in an object store", "a topic") if on_kafka else ("topics", "no topic")
    for key in explicit:
        if not fits(key, on_kafka=on_kafka):
            name = BY_KEY[key].name if key in BY_KEY else key
            raise OptionError(f"option {name} is for {kind}, and this log is {other}. Leave it out.")
