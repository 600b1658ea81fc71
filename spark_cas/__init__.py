"""Conditional publish for Spark: DataFrames appended to a log exactly once, at the expected offset.

Names load at their first use, so `open_log` and the log work without pyspark.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from spark_cas.core import __version__ as __version__

if TYPE_CHECKING:
    from spark_cas.core.errors import ConditionalLogError as ConditionalLogError
    from spark_cas.core.errors import error_from_text as error_from_text
    from spark_cas.core.outcome import raise_for_outcome as raise_for_outcome
    from spark_cas.core.records import RECORDS as RECORDS
    from spark_cas.log.load.append_once import append_once as append_once
    from spark_cas.log.open import open_log as open_log
    from spark_cas.spark.reading.bootstrap import Bootstrap as Bootstrap
    from spark_cas.spark.reading.bootstrap import bootstrap as bootstrap
    from spark_cas.spark.reading.verify_log import Difference as Difference
    from spark_cas.spark.reading.verify_log import Verification as Verification
    from spark_cas.spark.reading.verify_log import verify_log as verify_log
    from spark_cas.spark.source import ConditionalLogSource as ConditionalLogSource
    from spark_cas.spark.writing.append_if_unchanged import IfUnchanged as IfUnchanged
    from spark_cas.spark.writing.append_if_unchanged import append_if_unchanged as append_if_unchanged
    from spark_cas.spark.writing.preflight import LogSettingsWarning as LogSettingsWarning
    from spark_cas.spark.writing.route import route as route

_HOMES = {
    "RECORDS": "spark_cas.core.records",
    "Bootstrap": "spark_cas.spark.reading.bootstrap",
    "ConditionalLogError": "spark_cas.core.errors",
    "ConditionalLogSource": "spark_cas.spark.source",
    "Difference": "spark_cas.spark.reading.verify_log",
    "IfUnchanged": "spark_cas.spark.writing.append_if_unchanged",
    "LogSettingsWarning": "spark_cas.spark.writing.preflight",
    "Verification": "spark_cas.spark.reading.verify_log",
    "append_if_unchanged": "spark_cas.spark.writing.append_if_unchanged",
    "append_once": "spark_cas.log.load.append_once",
    "bootstrap": "spark_cas.spark.reading.bootstrap",
    "error_from_text": "spark_cas.core.errors",
    "open_log": "spark_cas.log.open",
    "raise_for_outcome": "spark_cas.core.outcome",
    "route": "spark_cas.spark.writing.route",
    "verify_log": "spark_cas.spark.reading.verify_log",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if not home.startswith("spark_cas.spark."):
        return getattr(import_module(home), name)
    from spark_cas.spark.supported import require_pyspark

    with require_pyspark():
        return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
