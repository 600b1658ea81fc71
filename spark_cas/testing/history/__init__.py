"""Histories: the requests and results of each client, and a check of the log against its guarantees."""

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
