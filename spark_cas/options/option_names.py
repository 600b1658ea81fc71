"""Check option names: reject unknown ones and suggest the closest known name."""

import difflib
import re
from collections.abc import Mapping

from spark_cas.core.errors import OptionError
from spark_cas.log.kafka.settings.jaas import parse_jaas
from spark_cas.log.kafka.settings.translate import ALLOWED, librdkafka_settings
from spark_cas.log.kafka.settings.unused import UNUSED_BY_NAME
from spark_cas.log.references import PREFIXES
from spark_cas.options.kafka_connector import refusal_of
from spark_cas.options.option import READING, Scope
from spark_cas.options.store_settings import PREFIX as STORE
from spark_cas.options.store_settings import STORE_OPTIONS
from spark_cas.options.table import BY_KEY, OPTIONS, SERVERS

KAFKA = "kafka."
"""The prefix of Kafka's client settings, and of the option that names the brokers."""

_CONDITIONS_OF_READS = frozenset({"logid"})
"""Options that make a read fail if the log is another one. A write does not check them, so it rejects them."""

_SECRET = re.compile(r"secret|password|token|key|jaas", re.IGNORECASE)
_PUBLIC = re.compile(r"(_file|[._]url|store\.location|store\.type|_kms_key_id|_enabled)$")
"""Names that `_SECRET` matches, and whose values are not secret."""


def without_secret(name: str, value: str) -> str:
    """Return the value of a valid option, and ``...`` for a secret. A reference to a secret is not secret."""
    key = name.lower()
    if not is_setting(key) or not _SECRET.search(key) or _PUBLIC.search(key):
        return value
    secrets = [value]
    if key == f"{KAFKA}sasl.jaas.config":
        secrets = [each for option, each in parse_jaas(value).options.items() if _SECRET.search(option)]
    # Only the settings of Kafka may be references.
    is_public = key.startswith(KAFKA) and all(each.startswith(PREFIXES) for each in secrets)
    return value if is_public else "..."


def is_setting(key: str) -> bool:
    """Return whether an option is a client setting, not an entry of the table."""
    return key not in BY_KEY and key.startswith((KAFKA, STORE))


def settings_of(options: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the client settings with a prefix, without the prefix."""
    return {key.removeprefix(prefix): value for key, value in options.items() if _has(key, prefix)}


def is_for(key: str, *scopes: Scope) -> bool:
    """Return whether any of the scopes accepts a known option."""
    return is_setting(key) or not BY_KEY[key].scopes.isdisjoint(scopes)


def has_no_effect(key: str, *scopes: Scope) -> bool:
    """Return whether an option is only for the other direction: for reads in a write, or for writes in a read.

    A condition of a read has no such use in a write: a caller that sets it expects the check.
    """
    option = BY_KEY.get(key)
    if option is None or key in _CONDITIONS_OF_READS or is_for(key, *scopes):
        return False
    return READING.isdisjoint(option.scopes) != READING.isdisjoint(scopes)


def fits(key: str, *, on_kafka: bool) -> bool:
    """Return whether an option applies to a backend."""
    if is_setting(key):
        return key.startswith(KAFKA if on_kafka else STORE)
    return on_kafka or not BY_KEY[key].kafka_only


def check_name(key: str, *scopes: Scope) -> None:
    """Raise OptionError unless any of the scopes accepts this option."""
    if is_setting(key):
        _check_setting(key)
        return
    option = BY_KEY.get(key)
    if option is not None and is_for(key, *scopes):
        return
    if option is not None:
        takers, own = (" and ".join(sorted(each.value for each in some)) for some in (option.scopes, scopes))
        raise OptionError(f"option {option.name} is one of {takers}, not of {own}. Leave it out here.")
    refusal = refusal_of(key)
    if refusal is not None:
        raise OptionError(f"there is no option {key!r}. {refusal}")
    known = {each.name.lower(): each.name for each in OPTIONS if not each.scopes.isdisjoint(scopes)}
    raise OptionError(f"there is no option {key!r}.{_nearest(key, known)}")


def check_defaults(table: Mapping[str, str]) -> None:
    """Raise OptionError unless the file of per-log defaults can set all of these."""
    known = {each.name.lower(): each.name for each in OPTIONS if each.per_log}
    for key in table:
        if is_setting(key):
            _check_setting(key)
        elif key in BY_KEY and not BY_KEY[key].per_log:
            raise OptionError(f"the file of per-log defaults may not set {BY_KEY[key].name}: give it as an option.")
        elif key not in known:
            raise OptionError(f"the file of per-log defaults sets {key!r}: no such option.{_nearest(key, known)}")


def _has(key: str, prefix: str) -> bool:
    return is_setting(key) and key.startswith(prefix)


def _check_setting(key: str) -> None:
    if key.startswith(KAFKA):
        name = key.removeprefix(KAFKA)
        if difflib.get_close_matches(key, [SERVERS], cutoff=0.9):
            raise OptionError(f"there is no option {key!r}. Did you mean {SERVERS}?")
        if name not in ALLOWED and name not in UNUSED_BY_NAME:
            librdkafka_settings({name: ""})  # raises OptionError with the alternative
        return
    if key.removeprefix(STORE) not in STORE_OPTIONS:
        known = {STORE + each: STORE + each for each in STORE_OPTIONS}
        raise OptionError(f"there is no option {key!r}, or it may not be set.{_nearest(key, known)}")


def _nearest(key: str, known: Mapping[str, str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    hint = f" Did you mean {known[near[0]]}?" if near else ""
    return f"{hint} docs/options.md lists all."
