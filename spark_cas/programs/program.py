"""Shared parts of the programs at run time: the Spark session, messages on stderr, and the result on stdout."""

import argparse
import json
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from spark_cas.log.log_lines import LOG_LEVEL
from spark_cas.programs.errors import ExitCode, exit_code_of, kind_of, line_of, plain_error
from spark_cas.spark.jvm import jvm_before_session, jvm_of
from spark_cas.spark.plain_errors import TRACEBACK
from spark_cas.spark.supported import require_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Environment variable that spark-submit sets. Its JVM starts before the program."""
_WORKERS_END_SECONDS = 30.0
_PAUSE_SECONDS = 0.05
_DEFAULT_LOG_SETTINGS = "log4j2-defaults.properties"

Result = Mapping[str, object]
StartSession = Callable[[bool], "SparkSession"]
"""Type of functions that start the session. The argument is whether to show Spark's log."""


def run(
    work: "Callable[[argparse.Namespace, SparkSession], tuple[ExitCode, Result]]",
    arguments: argparse.Namespace,
    start_session: StartSession,
) -> int:
    """Run the work of a program, print its result, and return the exit code. An error also has a result."""

    def in_session() -> tuple[ExitCode, Result]:
        # Import here, so that an invalid call fails without pyspark.
        with require_pyspark():
            from spark_cas.spark.source import ConditionalLogSource
            from spark_cas.spark.versions import register

        spark = start_session(arguments.traceback)
        # Otherwise Spark finds the data source only if the first python3 on PATH has this package.
        register(spark, ConditionalLogSource)
        return work(arguments, spark)

    began = time.monotonic()
    code, result = outcome_of(in_session, with_traceback=arguments.traceback)
    print_result(json.dumps({**result, "exit_code": int(code), "seconds": round(time.monotonic() - began, 3)}))
    return code


def outcome_of(work: Callable[[], tuple[ExitCode, Result]], *, with_traceback: bool) -> tuple[ExitCode, Result]:
    """Run some work and return its outcome. If it raises an error, print the error and return it as an outcome."""
    console = message_console()
    try:
        return work()
    except KeyboardInterrupt:
        print_line(console, "interrupted", "yellow")
        return ExitCode.INTERRUPTED, {"status": "interrupted"}
    except Exception as error:  # noqa: BLE001 - the result reports every error
        plain = print_error(error, console, with_traceback=with_traceback)
        return exit_code_of(plain), {"status": "failed", "error": kind_of(plain), "message": str(plain)}


def message_console() -> Console:
    """Return a console for stderr, or for the terminal of spark-submit.

    spark-submit reads stderr of a Python program through a pipe and prints it on its own stdout. The program
    therefore does not detect a terminal, and its messages would mix with the result.
    """
    if _SUBMITTED in os.environ and not sys.stderr.isatty():
        # Only Linux exposes the open files of another process. Other systems get lines instead of a bar.
        with suppress(OSError):
            stderr_of_parent = Path(f"/proc/{os.getppid()}/fd/2")
            terminal = stderr_of_parent.open("w", encoding="utf-8")
            if terminal.isatty():
                return Console(file=terminal)
            terminal.close()
    return Console(stderr=True)


def print_line(console: Console, text: str, style: str = "") -> None:
    """Print a text without markup, on one line of any length."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def print_error(error: Exception, console: Console, *, with_traceback: bool) -> Exception:
    """Print an error that ended a program on one line, and return the simplified error."""
    if with_traceback:
        traceback.print_exc()
    plain = plain_error(error)
    print_line(console, f"error: {line_of(plain)}", "red")
    return plain


def print_result(line: str) -> None:
    """Print the result, which is the last line on stdout."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def submitted_session(name: str, *, show_log: bool) -> "SparkSession":
    """Return the session of spark-submit, or a session on this machine if the program was started directly.

    Spark's log, with the lines of writes, is off unless ``show_log``, because the program prints the result itself.
    Log settings of a cluster are not changed.
    """
    builder = _builder(name)
    if _SUBMITTED in os.environ:
        if show_log or not _log_is_not_set_up():
            return _started(builder, show_log=show_log)
        _hide_lines_of_writes()
        builder = builder.config("spark.log.level", "OFF").config("spark.ui.showConsoleProgress", "false")
        spark = _started(builder, show_log=show_log)
        # The JVM, whose environment the Python processes inherit, was started before.
        spark.sparkContext.environment.setdefault(LOG_LEVEL, os.environ[LOG_LEVEL])
        return spark
    return _started(builder, show_log=show_log, silent=not show_log and "SPARK_CONF_DIR" not in os.environ)


def local_session(name: str, *, show_log: bool) -> "SparkSession":
    """Return a session that uses all cores of this machine. Spark's log is off unless ``show_log``."""
    builder = _builder(name)
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    return _started(builder, show_log=show_log, silent=not show_log)


def stop_session(spark: "SparkSession") -> None:
    """Stop a session and wait until its Python workers on this machine have exited, for at most 30 seconds.

    Spark requests the workers to exit but does not wait for them, and a worker may still append rows until then. This
    function does not wait for workers on other machines.
    """
    groups = _worker_groups(spark)
    with suppress(Exception):  # under spark-submit, Ctrl-C stops the JVM as well
        spark.stop()
    deadline = time.monotonic() + _WORKERS_END_SECONDS
    while any(map(_is_alive, groups)) and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)


def _worker_groups(spark: "SparkSession") -> list[int]:
    """Return the process groups of the Python workers. Each is led by a child of the JVM."""
    try:
        jvm: Any = jvm_of(spark)
        children = [child.pid() for child in jvm.java.lang.ProcessHandle.current().children().toArray()]
    except Exception:  # noqa: BLE001 - Spark Connect has no local JVM; a stopping JVM fails in many ways
        return []
    # Under spark-submit, this program is also a child of the JVM.
    return [child for child in children if child != os.getpid()]


def _is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True


def _builder(name: str) -> "SparkSession.Builder":
    with require_pyspark():
        from pyspark.sql import SparkSession

    # Spark's default is the first python3 on PATH, which may lack this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return SparkSession.builder.appName(name)


def _started(builder: "SparkSession.Builder", *, show_log: bool, silent: bool = False) -> "SparkSession":
    from pyspark.logger import PySparkLogger
    from pyspark.sql.utils import is_remote

    if silent:
        _hide_lines_of_writes()
        with as_file(files("spark_cas.programs") / "log4j2-off.properties") as settings:
            java_option = f"-Dlog4j2.configurationFile={settings.as_uri()}"
            spark = builder.config("spark.driver.extraJavaOptions", java_option).getOrCreate()
    else:
        spark = builder.getOrCreate()
    _let_ctrl_c_through()
    if not show_log:
        # PySpark prints the context of a failed query to stderr as JSON. The program prints the error.
        for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
            PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    if show_log and not is_remote():
        spark.sparkContext.environment[TRACEBACK] = "1"
    return spark


def _hide_lines_of_writes() -> None:
    os.environ.setdefault(LOG_LEVEL, "WARNING")


def _let_ctrl_c_through() -> None:
    """Let Ctrl-C raise only KeyboardInterrupt.

    PySpark's handler cancels all jobs in the JVM during a pending call. That call fails, and Py4J prints tracebacks.
    The code that catches the interrupt stops the session instead.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Py4J also logs errors that it raises, through its own loggers and the root logger.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)


def _log_is_not_set_up() -> bool:
    """Return whether the JVM of spark-submit uses Spark's default log settings, which are verbose."""
    from pyspark.sql.utils import is_remote

    if is_remote():
        return False
    logs = jvm_before_session().org.apache.logging.log4j.LogManager
    used = logs.getContext(False).getConfiguration().getConfigurationSource().getLocation()  # noqa: FBT003
    return used is not None and str(used).endswith(_DEFAULT_LOG_SETTINGS)
