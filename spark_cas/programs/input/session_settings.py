"""Pin the settings of a Spark session that change the bytes of a loaded row.

A job may resume in another session, so a row must not depend on the session. During a load each setting in the file
session_settings.txt has one value. The value is the default of Spark 4.2, unless the file names another choice. SQL
expressions of a load therefore run in UTC: ``date_format(ts, 'HH')`` is the hour in UTC, and a timestamp text without
a zone is UTC.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING
from warnings import catch_warnings

from pyspark.errors import PySparkException

from spark_cas.programs.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NONE: Mapping[str, str] = MappingProxyType({})
_NO_VALUE = "SQL_CONF_NOT_FOUND"
"""Error condition of Spark for a setting without a value. This version may not know the setting."""


def _pinned() -> Iterator[tuple[str, str]]:
    for line in (files(__package__) / "session_settings.txt").read_text(encoding="utf-8").splitlines():
        setting = line.partition("#")[0].split()
        if setting:
            name, value = setting
            yield f"spark.sql.{name}", value


PINNED: Mapping[str, str] = MappingProxyType(dict(_pinned()))
"""Each pinned setting and its value during a load. The file has the effect of each."""


@contextmanager
def pinned_settings(spark: "SparkSession", extra: Mapping[str, str] = _NONE) -> Iterator[None]:
    """Set all settings of `PINNED` and ``extra`` within the context, and restore the previous values after it.

    Spark resolves a DataFrame when it is built and when it runs, so both must be within the context. Other threads
    that use the same session see the pinned values too. A setting is skipped if it has no value and the session
    rejects it as unknown.

    Raises:
        UsageError: if the session does not permit a change of a setting; all settings are restored first
    """
    explicit = spark.conf.getAll
    changed: list[str] = []
    try:
        for name, value in {**PINNED, **extra}.items():
            if _current(spark, name) != value and _set(spark, name, value):
                changed.append(name)
        yield
    finally:
        for name in changed:
            if name in explicit:
                with catch_warnings(action="ignore"):  # Connect warns about deprecated settings
                    spark.conf.set(name, explicit[name])
            else:
                spark.conf.unset(name)


def _set(spark: "SparkSession", name: str, value: str) -> bool:
    """Set a setting and return True; False if the session does not know it and rejects it."""
    try:
        with catch_warnings(action="ignore"):  # as above
            spark.conf.set(name, value)
    except PySparkException as error:
        current = _current(spark, name)
        if current is None:
            return False
        raise UsageError(
            f"the session does not allow {name} to be changed: it is {current!r}, and a load needs {value!r}. "
            f"Nothing was appended. Set it where the session is configured."
        ) from error
    return True


def _current(spark: "SparkSession", name: str) -> str | None:
    """Return the value of a setting; None if it has none, or if this version of Spark does not know it."""
    try:
        return spark.conf.get(name)
    except PySparkException as error:
        if error.getCondition() != _NO_VALUE:
            raise
        return None
