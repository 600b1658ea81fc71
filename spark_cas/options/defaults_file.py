"""Per-log defaults of options, from a TOML file."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

from spark_cas.core.errors import OptionError
from spark_cas.log.open import AnySpec, parse_address

VARIABLE = "SPARK_CAS_CONF"

_Table = dict[str, str]


def per_log_defaults(conf: str | None, spec: AnySpec | None) -> tuple[_Table, tuple[_Table, ...]]:
    """Return the defaults of a log, and all tables of the file.

    A table named as the log's address overrides one named as the log, and both override ``[defaults]``. Names are in
    lower case, and values are text.

    Args:
        conf: The path of the file; None to use the environment variable SPARK_CAS_CONF.
        spec: The log; None to use ``[defaults]`` only.

    Raises:
        OptionError: The file cannot be read, or does not have the expected tables.
    """
    file = conf or os.environ.get(VARIABLE)
    if not file:
        return {}, ()
    general, logs = _tables(Path(file).expanduser())
    chosen = dict(general)
    if spec is not None:
        by_name = [table for name, table in logs.items() if name == spec.topic]
        by_address = [table for name, table in logs.items() if _same_address(name, spec)]
        for table in (*by_name, *by_address):
            chosen |= table
    return chosen, (general, *logs.values())


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


def _same_address(name: str, spec: AnySpec) -> bool:
    # A name without a slash is the log's name, not a directory below the driver's working directory.
    if "/" not in name:
        return False
    try:
        return parse_address(name).url == spec.url
    except OptionError:
        return False
