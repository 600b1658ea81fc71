"""`doctor`: report the problems of a log, and abort open transactions."""

import argparse
import os
import platform
import shlex
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from importlib import metadata

from rich.console import Console

from spark_cas import __version__
from spark_cas.cli.command_line import json_line
from spark_cas.cli.opening import naming, read_options
from spark_cas.core.finding import Finding, Problem, Severity
from spark_cas.log import clock, timing
from spark_cas.log.backend import Backend
from spark_cas.log.doctor import exact_transaction, examine
from spark_cas.log.open import open_log
from spark_cas.options.option_values import without_secret
from spark_cas.programs.errors import ExitCode, UsageError
from spark_cas.programs.program import print_line
from spark_cas.spark.supported import NEWEST, OLDEST, SUPPORTED, number_of

_PACKAGES = ("pyspark", "confluent-kafka", "obstore", "pyarrow", "kafka-python")
_PLATFORMS = {"DATABRICKS_RUNTIME_VERSION": "Databricks", "EMR_RELEASE_LABEL": "EMR", "GLUE_VERSION": "Glue"}
"""The environment variables in which platforms name their version."""
_STYLES = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: ""}
_CODES = {Severity.ERROR: ExitCode.ERROR, Severity.WARNING: ExitCode.WARNING, Severity.INFO: ExitCode.COMPLETE}


def doctor(arguments: argparse.Namespace) -> ExitCode:
    """Report the problems of a log, or abort open transactions of a topic."""
    exact = (arguments.producer_id, arguments.producer_epoch, arguments.partition)
    if not arguments.abort and (arguments.yes or any(each is not None for each in exact)):
        raise UsageError("--producer-id, --producer-epoch, --partition and --yes need --abort")
    if None in exact and any(each is not None for each in exact):
        raise UsageError("--producer-id, --producer-epoch and --partition require each other")
    if arguments.abort and arguments.json:
        raise UsageError("--json is for the report, and --abort makes none")
    spec = read_options(arguments).selection.only()
    # A part that is blocked is reported, so do not wait for it as long as a write would.
    short = spec.with_patience(int(1000 * timing.current().longest_request))
    with naming(spec), open_log(short) as log:
        if arguments.abort:
            _abort(log, arguments)
            return ExitCode.COMPLETE
        accelerated = {**log.accelerators(), "quick_ack": hasattr(socket, "TCP_QUICKACK")}
        findings = [*examine(log, clock.now_ms()), *environment_findings(accelerated)]
    findings = [_with_address(each, arguments) for each in findings]
    code = max((_CODES[each.severity] for each in findings), default=ExitCode.COMPLETE)
    if arguments.json:
        status = {code: str(severity) for severity, code in _CODES.items()} | {ExitCode.COMPLETE: "ok"}
        environment = {"versions": versions(), "accelerators": accelerated}
        report = {"log": spec.topic, "status": status[code], "environment": environment}
        print(json_line(report | {"findings": [asdict(each) for each in findings]}))
    else:
        _print(spec.topic, accelerated, findings)
    return code


def _abort(log: Backend, arguments: argparse.Namespace) -> None:
    transactions = log.open_transactions()
    if arguments.producer_id is None:
        own = [each for each in transactions if each.own]
        for each in own:
            log.abort_transaction(each)
            print(f"aborted the transaction of {each.transactional_id}: its load retries, or fails and can run again")
        if not own:
            print(f"the writers of {log.topic} have no open transaction")
        return
    partition = arguments.partition
    transaction = exact_transaction(
        transactions, log.topic, partition, arguments.producer_id, arguments.producer_epoch
    )
    name = transaction.transactional_id or "no visible transactional id"
    label = f"producer id {transaction.producer_id}, epoch {transaction.producer_epoch} ({name})"
    listed_at = time.monotonic()
    if transaction.orphaned:
        seconds = transaction.watch_ms() / 1000
        effect = (
            f"No coordinator lists it. doctor watches it for {seconds:.0f} s. If it is still open then, the broker "
            f"aborts it in this partition only, and its producer is not fenced"
        )
    else:
        seconds = 0.0
        effect = "Its coordinator aborts it in all partitions, and fences its producer"
    if not transaction.own and not arguments.yes:
        _confirm(f"Abort the transaction of {label} in partition {partition} of {log.topic}? {effect}.")
    elif seconds:
        print(f"watching the transaction of {label}. {effect}. Ctrl-C changes nothing", flush=True)
    while (watched := time.monotonic() - listed_at) < seconds:
        time.sleep(seconds - watched)
    log.abort_transaction(transaction, partition, int(1000 * watched))
    print(f"aborted the transaction of {label} in partition {partition} of {log.topic}")


def _confirm(question: str) -> None:
    if not sys.stdin.isatty():
        raise UsageError("--abort of another producer's transaction needs a confirmation: add --yes")
    answer = ""
    with suppress(EOFError):  # Ctrl-D
        answer = input(f"{question} [y/N] ")
    if answer.strip().lower() not in {"y", "yes"}:
        raise UsageError("not confirmed, and nothing was changed")


def _with_address(finding: Finding, arguments: argparse.Namespace) -> Finding:
    """Return a finding whose fix names the log as the user did, with the same options except secrets."""
    if arguments.bootstrap_servers is None:
        address = shlex.quote(str(arguments.log))
    else:
        brokers = shlex.quote(arguments.bootstrap_servers)
        address = f"--bootstrap-servers {brokers} --topic {shlex.quote(arguments.topic)}"
    options = [f"{name}={without_secret(name, value)}" for name, value in arguments.log_option]
    address = " ".join([address, *(f"--log-option {shlex.quote(each)}" for each in options)])
    words = [address if word == "LOG" else word for word in finding.fix.split(" ")]
    return replace(finding, fix=" ".join(words))


def _print(topic: str, accelerated: Mapping[str, bool], findings: Sequence[Finding]) -> None:
    console = Console()
    known = ", ".join(f"{name} {version}" for name, version in versions().items() if version is not None)
    print_line(console, f"{topic}: {known}")
    print_line(console, f"accelerators: {', '.join(name for name, used in accelerated.items() if used) or 'none'}")
    for each in findings:
        print_line(console, f"{each.severity} {each.problem} {each.subject}", _STYLES[each.severity])
        print_line(console, f"    {each.meaning}")
        print_line(console, f"    fix: {each.fix}")
    severities = [each.severity for each in findings]
    counts = ", ".join(f"{severities.count(each)} {each}" for each in reversed([*Severity]))
    print_line(console, counts if findings else "no problem found")


def versions() -> dict[str, str | None]:
    """Return the versions of the package, Python, Spark, the client libraries and the platform.

    None if a package is not installed.
    """
    named = [f"{name} {os.environ[key]}" for key, name in _PLATFORMS.items() if os.environ.get(key)]
    return {
        "spark-cas": __version__,
        "python": platform.python_version(),
        **{name: _version(name) for name in _PACKAGES},
        "platform": ", ".join([*named, f"{platform.system()} {platform.machine()}"]),
    }


def environment_findings(accelerated: Mapping[str, bool]) -> Iterator[Finding]:
    """Yield findings on the versions and the accelerators."""
    spark = _version("pyspark")
    if spark is not None and not OLDEST <= number_of(spark) <= NEWEST:
        yield Finding(
            Problem.UNSUPPORTED_VERSION,
            Severity.WARNING,
            "pyspark",
            f"pyspark {spark} is not supported: no test runs on it. Supported is pyspark {SUPPORTED}",
            "pip install 'spark-cas[spark]'",
        )
    for name, used in accelerated.items():
        if not used:
            client = "pip install --only-binary :all: 'confluent-kafka==2.16.*'"
            yield Finding(
                Problem.ACCELERATOR_UNUSED,
                Severity.INFO,
                f"accelerator {name}",
                f"this process cannot use the accelerator {name}. Writes take longer, and are correct",
                "run on Linux" if name == "quick_ack" else client,
            )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
