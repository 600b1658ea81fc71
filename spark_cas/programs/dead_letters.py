"""The log for the bad rows of a load (``--bad-rows LOG``): its address, its options, and checks before the load."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from spark_cas.core.errors import ConditionalLogError, InputChangedError, LogNotFoundError, UnreadableInputError
from spark_cas.core.guarantee import REQUIRED
from spark_cas.log.backend import Backend
from spark_cas.log.open import AnySpec, open_log
from spark_cas.options.parse import parse_load
from spark_cas.options.request import WriteRequest
from spark_cas.programs.errors import UsageError, plain_error
from spark_cas.programs.load_report import rows_now

_URL = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)
_GUARANTEE = {"expectedOffsets": "none", "idempotence": REQUIRED, "atomic": "false"}
_ADDRESS = ("path", "kafka.bootstrap.servers", "topic")


def is_log(target: str | None) -> bool:
    """Return whether ``--bad-rows`` names a log: a URL or an existing folder. Any other path is a file."""
    return target is not None and (_URL.match(target) is not None or Path(target).is_dir())


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """The write that appends the bad rows of a load to their own log."""

    options: dict[str, str] = field(repr=False)
    """Its options. They may be secret."""
    write: WriteRequest

    @property
    def job(self) -> str:
        """Its job. It is the same in each run of the load, so that the rows are appended once."""
        return self.options["job"]

    def require_usable(self, log: Backend) -> None:
        """Check that the bad rows can be appended, before the load reads a row.

        Args:
            log: the log of the load

        Raises:
            UsageError: if the address has no log, has the log of the load, or has a log that requires keys
            ConditionalLogError: if `preflight` fails
        """
        url = self.write.spec.url
        with naming(url), open_log(self.write.spec) as own:
            try:
                log_id = own.layout_now().log_id
            except LogNotFoundError as error:
                raise UsageError(
                    f"--bad-rows: there is no log at {url}. Nothing was appended. Check the address, or create the "
                    f"topic (the directory: spark_cas.open_log(address).create(1)) first."
                ) from error
            preflight = own.preflight(idempotence=REQUIRED)
        if preflight.keys_required:
            raise UsageError(
                f"--bad-rows: {url} is compacted, and bad rows have no key. Nothing was appended. Name another topic."
            )
        with suppress(LogNotFoundError):
            if log.has_id(log_id):
                raise UsageError(f"--bad-rows: {url} is the log of the load. Nothing was appended. Name another log.")

    def rows(self) -> int | None:
        """Return the number of bad rows in the log; None if it is not known, or the write is not complete."""
        rows = rows_now(self.write.spec, self.job)
        return rows.rows if rows is not None and rows.complete else None


def dead_letters_of(target: str | None, write: WriteRequest, job: str) -> DeadLetters | None:
    """Return the write of the bad rows of a load; None if they have no log.

    On the same brokers, or in the same bucket, it has the client settings of the load.

    Args:
        target: the argument ``--bad-rows``
        write: the write of the load
        job: the job of the load

    Raises:
        ConditionalLogError: if the address is invalid, or the job name is too long
    """
    if target is None or not is_log(target):
        return None
    own = {"path": target, "job": f"{job}.bad-rows", **_GUARANTEE}
    with naming():
        is_same = _server(parse_load(own).spec) == _server(write.spec)
        inherited = {key: value for key, value in write.reading if key == "conf" or (is_same and key not in _ADDRESS)}
        options = {**inherited, **own, "lineage": "false"}
        return DeadLetters(options, parse_load(options))


@contextmanager
def naming(url: str = "", job: str = "") -> Iterator[None]:
    """Add the URL of the log for bad rows to its errors, and the fix if the bad rows of ``job`` have changed.

    An error of the input is raised unchanged.
    """
    try:
        yield
    except Exception as error:
        plain = plain_error(error)
        if not isinstance(plain, ConditionalLogError) or isinstance(plain, UnreadableInputError):
            raise
        # The load itself appends after the bad rows, and its report has only its own rows and offsets.
        message = f"--bad-rows{url and ' '}{url}: {plain.message}"
        if job and isinstance(plain, InputChangedError):
            message += (
                f" To append the bad rows of the new input too, first run: spark-cas forget --force {job} {url}"
            )
        raise plain.with_message(message, appended_rows={}, next_offsets=None) from error


def _server(spec: AnySpec) -> tuple[str, list[str]]:
    parts = urlsplit(spec.url)
    return parts.scheme, sorted(parts.netloc.split(","))
