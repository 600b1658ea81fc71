"""A writer process that dies, or waits to be killed, at a named point of its third chunk.

Arguments: the address, the store options as JSON, and the point. It appends chunks of two rows: ``0 0'``, ``1 1'``
and so on.
"""

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

from spark_cas.core.errors import StorageError
from spark_cas.log.objects import ObjectLog, local
from spark_cas.log.spec import LogSpec
from tests.support.writing import JobWriter, table_of

CHUNKS = 5
KILLED_AT = 2


def die() -> NoReturn:
    """Kill this process without any cleanup, as with ``kill -9``."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def say(line: str) -> None:
    """Print a line for the test."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def dying_os(point: str) -> Any:
    """Return the module ``os`` for `local`, which kills the process before or after the link of a chunk."""

    def link(staged: Path, target: Path, **options: Any) -> None:
        if point == "before the link":
            die()
        os.link(staged, target, **options)
        if point == "before the unlink":
            die()

    return SimpleNamespace(**{**vars(os), "link": link})


def main() -> None:
    """Append all chunks."""
    address, options, point = sys.argv[1:]
    log = ObjectLog(LogSpec.parse(address, json.loads(options)))
    plan = log.plan("job")
    assert plan is not None
    writer = JobWriter(log, plan)
    done = writer.claim.progress.chunks if writer.claim.progress else 0
    assert done == 0
    for chunk in range(CHUNKS):
        if chunk == KILLED_AT:
            strike(point, log, writer)
        writer.must_append(f"{chunk}", f"{chunk}'")


def strike(point: str, log: ObjectLog, writer: JobWriter) -> None:
    """Prepare the death of the process in the next append, or die here."""
    if point == "full":
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            writer.append(table_of(["2", "2'"]))
        except StorageError as error:
            say(str(error))
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    elif point == "within the put":
        say("putting")
        # The proxy does not answer this put while the process lives.
        writer.append(table_of(["2", "2'"]))
        time.sleep(60)
    else:
        local.os = dying_os(point)  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
