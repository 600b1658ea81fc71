"""Conditional publish for Spark: DataFrames appended to a log exactly once, at the expected offset.

Names load at their first use, so `open_log` and the log work without pyspark.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from spark_cas.core import __version__ as __version__

if TYPE_CHECKING:
    from spark_cas.core.errors import ConditionalLogError, error_from_text
    from spark_cas.core.records import RECORDS
    from spark_cas.core.refusal import raise_for_outcome
    from spark_cas.log.load.append_once import append_once
    from spark_cas.log.open import open_log
    from spark_cas.spark.reading.bootstrap import Bootstrap, bootstrap
    from spark_cas.spark.reading.verify_log import Difference, Verification, verify_log
    from spark_cas.spark.source import ConditionalLogSource
    from spark_cas.spark.writing.append_if_unchanged import IfUnchanged, append_if_unchanged
    from spark_cas.spark.writing.preflight import LogSettingsWarning
    from spark_cas.spark.writing.route import route


__all__ = [
    "RECORDS",
    "Bootstrap",
    "ConditionalLogError",
    "ConditionalLogSource",
    "Difference",
    "IfUnchanged",
    "LogSettingsWarning",
    "Verification",
    "append_if_unchanged",
    "append_once",
    "bootstrap",
    "error_from_text",
    "open_log",
    "raise_for_outcome",
    "route",
    "verify_log",
]

_HOMES = {
    "core.errors": {"ConditionalLogError", "error_from_text"},
    "core.records": {"RECORDS"},
    "core.refusal": {"raise_for_outcome"},
    "log.load.append_once": {"append_once"},
    "log.open": {"open_log"},
    "spark.reading.bootstrap": {"Bootstrap", "bootstrap"},
    "spark.reading.verify_log": {"Difference", "Verification", "verify_log"},
    "spark.source": {"ConditionalLogSource"},
    "spark.writing.append_if_unchanged": {"IfUnchanged", "append_if_unchanged"},
    "spark.writing.preflight": {"LogSettingsWarning"},
    "spark.writing.route": {"route"},
}


def __getattr__(name: str) -> object:
    home = next((home for home, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if not home.startswith("spark."):
        return getattr(import_module(f"{__name__}.{home}"), name)
    from spark_cas.spark.supported import require_pyspark

    with require_pyspark():
        return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
