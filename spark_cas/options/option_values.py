"""Options as Spark passes them: their names, their values, and the defaults of the log."""

import difflib
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from spark_cas.core.errors import OptionError
from spark_cas.log.kafka.settings.client_settings import UNUSED_BY_NAME, holds_instead, log_ignored
from spark_cas.log.kafka.settings.jaas import parse_jaas
from spark_cas.log.kafka.settings.translate import is_allowed, librdkafka_settings
from spark_cas.log.open import AnySpec, parse_address, with_settings
from spark_cas.log.secret_references import PREFIXES
from spark_cas.log.spec import RETRY_TIMEOUT
from spark_cas.options.request import NO_ADDRESS, Selection, selection_of
from spark_cas.options.table import BY_KEY, OPTIONS, READING, SERVERS, Scope

KAFKA = "kafka."
"""The prefix of Kafka's client settings, and of the option that names the brokers."""
STORE = "store."
"""The prefix of the settings of object stores."""


def _names(prefix: str, text: str) -> frozenset[str]:
    """Return the names in a text, without and with a prefix."""
    return frozenset(before + name for name in text.split() for before in ("", prefix))


AWS = _names(
    "aws_",
    """
    access_key_id checksum_algorithm container_authorization_token_file container_credentials_full_uri
    container_credentials_relative_uri default_region disable_tagging endpoint endpoint_url imdsv1_fallback
    metadata_endpoint region request_payer role_arn role_session_name s3_express secret_access_key
    server_side_encryption session_token skip_signature sse_bucket_key_enabled sse_customer_key_base64 sse_kms_key_id
    unsigned_payload virtual_hosted_style_request web_identity_token_file
    """,
)
AZURE = _names(
    "azure_",
    """
    client_id client_secret disable_tagging fabric_cluster_identifier fabric_session_token fabric_token_service_url
    fabric_workload_host federated_token_file msi_endpoint msi_resource_id object_id skip_signature tenant_id
    use_fabric_endpoint
    """,
) | _names(
    "azure_storage_",
    """
    account_key account_name authority_host authority_id client_id client_secret encryption_key endpoint sas_key
    sas_token tenant_id token use_emulator
    """,
)
GOOGLE = _names(
    "google_", "application_credentials base_url bearer_token service_account service_account_key skip_signature"
)
STORE_OPTIONS = AWS | AZURE | GOOGLE | {"allow_http", RETRY_TIMEOUT}
"""The allowlist of settings of object stores, without prefix, in lower case.

It excludes the bucket and container, because the address names them. It excludes ``conditional_put`` and
``copy_if_not_exists``, because the guarantees require put-if-absent. It excludes ``use_azure_cli``, which runs a
program on every worker, and ``credential_type``. It excludes all settings that weaken TLS except ``allow_http``,
which test servers need.
"""

_READ_BYTES = "A read returns keys and values as binary. Cast the column."
_WRITTEN_BYTES = "A write takes keys and values as binary or string. Cast the column."
_PATIENCE = UNUSED_BY_NAME["default.api.timeout.ms"].instead
REFUSED_SOURCE = {
    "kafka.auto.offset.reset": "Use `startingOffsets` and `failOnDataLoss`.",
    "kafka.key.deserializer": _READ_BYTES,
    "kafka.value.deserializer": _READ_BYTES,
    "kafka.enable.auto.commit": "A read commits no offsets.",
    "kafka.interceptor.classes": "The client runs no Java.",
}
"""Options of the source of Spark's Kafka connector that this package rejects: the reason, and the fix."""
REFUSED_SINK = {
    "kafka.key.serializer": _WRITTEN_BYTES,
    "kafka.value.serializer": _WRITTEN_BYTES,
    "kafka.partitioner.class": "Use the option `partitioner`.",
}
UNUSED_SOURCE = {
    "groupIdPrefix": UNUSED_BY_NAME["group.id"].instead,
    "kafkaConsumer.pollTimeoutMs": _PATIENCE,
    "fetchOffset.numRetries": _PATIENCE,
    "fetchOffset.retryIntervalMs": _PATIENCE,
}
"""Options of the connector's source that have no effect, each with its replacement. Client settings are apart."""
UNUSED_SINK = {"includeHeaders": "A write stores the column `headers` if there is one."}
_LIMITS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_UNUSED_BATCH = dict.fromkeys(_LIMITS, "It limits the micro-batches of a stream. This read has none.")
"""Options of streams that the connector's source also accepts in a batch read, with a warning."""

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
    # A value of another client is hidden, also if it is a reference.
    is_public = key.startswith(KAFKA) and all(each.startswith(PREFIXES) for each in secrets)
    return value if is_public else "..."


def is_setting(key: str) -> bool:
    """Return whether an option is a client setting, not an entry of the table."""
    return key not in BY_KEY and key.startswith((KAFKA, STORE))


def settings_of(options: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the client settings with a prefix, without the prefix."""
    return {
        key.removeprefix(prefix): value
        for key, value in options.items()
        if is_setting(key) and key.startswith(prefix)
    }


def is_for(key: str, *scopes: Scope) -> bool:
    """Return whether any of the scopes accepts a known option."""
    return is_setting(key) or not BY_KEY[key].scopes.isdisjoint(scopes)


def unused_by(*scopes: Scope) -> dict[str, str]:
    """Return the options of Spark's Kafka connector that have no effect in the scopes, except client settings.

    Each has its replacement. Their names are in lower case.
    """
    if not READING.issuperset(scopes):
        unused = UNUSED_SOURCE | UNUSED_SINK
    else:
        unused = UNUSED_SOURCE if Scope.READ_STREAM in scopes else UNUSED_SOURCE | _UNUSED_BATCH
    return {name.lower(): instead for name, instead in unused.items()}


def has_no_effect(key: str, *scopes: Scope) -> bool:
    """Return whether an option is only for the other direction: for reads in a write, or for writes in a read.

    A condition of a read has no such use in a write: a caller that sets it expects the check.
    """
    option = BY_KEY.get(key)
    if option is None or key in _CONDITIONS_OF_READS or is_for(key, *scopes):
        return False
    return READING.isdisjoint(option.scopes) != READING.isdisjoint(scopes)


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
    if reason := (REFUSED_SOURCE | REFUSED_SINK).get(key):
        raise OptionError(f"there is no option {key!r}. {reason}")
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


def _check_setting(key: str) -> None:
    if key.startswith(KAFKA):
        name = key.removeprefix(KAFKA)
        if difflib.get_close_matches(key, [SERVERS], cutoff=0.9):
            raise OptionError(f"there is no option {key!r}. Did you mean {SERVERS}?")
        if not is_allowed(name) and name not in UNUSED_BY_NAME:
            librdkafka_settings({name: ""})  # raises OptionError with the alternative
        return
    if key.removeprefix(STORE) not in STORE_OPTIONS:
        known = {STORE + each: STORE + each for each in STORE_OPTIONS}
        raise OptionError(f"there is no option {key!r}, or it may not be set.{_nearest(key, known)}")


def _nearest(key: str, known: Mapping[str, str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    hint = f" Did you mean {known[near[0]]}?" if near else ""
    return f"{hint} docs/options.md lists all."


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

    It raises OptionError if an option is unknown or malformed, or does not apply to the backend of the log.
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

        With ``explicit``, this ignores the defaults of the log. Raises OptionError if the value is malformed, and
        TypeError if the option has another type than ``kind``.
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
        option = BY_KEY.get(key)
        fits = key.startswith(KAFKA if on_kafka else STORE) if option is None else on_kafka or not option.kafka_only
        if not fits:
            name = key if option is None else option.name
            raise OptionError(f"option {name} is for {kind}, and this log is {other}. Leave it out.")


def _per_log_defaults(conf: str | None, spec: AnySpec | None) -> _Table:
    """Return the defaults of a log from a TOML file, only ``[defaults]`` without a log; raise OptionError if invalid.

    A table named as the log's address overrides one named as the log, and both override ``[defaults]``. Names are in
    lower case, and values are text.
    """
    file = conf or os.environ.get(VARIABLE)
    if not file:
        return {}
    general, logs = _tables(file)
    for table in (general, *logs.values()):
        check_defaults(table)
    result = dict(general)
    if spec is not None:
        result |= logs.get(spec.topic, {})
        for name, table in logs.items():
            if _is_address(name, spec):
                result |= table
    return result


def _tables(file: str) -> tuple[_Table, dict[str, _Table]]:
    try:
        document = tomllib.loads(Path(file).expanduser().read_text(encoding="utf-8"))
    except (OSError, ValueError, RuntimeError):  # RuntimeError: the home of ~ or ~user is not known
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
