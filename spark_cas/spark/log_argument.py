"""How the programs' command lines say where a log is."""

from spark_cas.spark.exit_codes import UsageError


def log_address(log: str | None, bootstrap_servers: str | None, topic: str | None) -> str:
    """One address from ``--log PATH`` or ``--bootstrap-servers HOST:PORT --topic NAME``; UsageError for else."""
    if (log is None) == (bootstrap_servers is None):
        raise UsageError("expected a log, or --bootstrap-servers with --topic, and one of the two only")
    if (bootstrap_servers is None) != (topic is None):
        raise UsageError("--bootstrap-servers and --topic go together")
    return log if log is not None else f"kafka://{bootstrap_servers}/{topic}"
