"""Histories: what each client asked of a log and was told, and whether the log is one that the promises allow."""

from spark_cas.testing.history.check_log import CHANGED, check_log
from spark_cas.testing.history.operations import FAIL, INFO, OK, Operation, read_history
from spark_cas.testing.history.recorder import Recorder
from spark_cas.testing.history.records import Found, Record, chained
from spark_cas.testing.history.violation import Violation

__all__ = [
    "CHANGED",
    "FAIL",
    "INFO",
    "OK",
    "Found",
    "Operation",
    "Record",
    "Recorder",
    "Violation",
    "chained",
    "check_log",
    "read_history",
]
