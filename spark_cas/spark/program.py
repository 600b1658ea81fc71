"""What the programs have in common: people read stderr, other programs the last line of stdout, as JSON."""

import json
import sys
import time
import traceback
from collections.abc import Callable, Mapping

from spark_cas.spark.exit_codes import ExitCode, exit_code_of, kind_of, plain_error
from spark_cas.spark.load_progress import console_for_people

Result = Mapping[str, object]


def run(work: Callable[[], tuple[ExitCode, Result]], *, debug: bool) -> int:
    """Do the work of a program, print its result, and return the exit code; an error becomes both."""
    began = time.monotonic()
    code, result = _outcome(work, debug=debug)
    line = json.dumps({**result, "exit_code": int(code), "seconds": round(time.monotonic() - began, 3)})
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
    return code


def _outcome(work: Callable[[], tuple[ExitCode, Result]], *, debug: bool) -> tuple[ExitCode, Result]:
    try:
        return work()
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED, {"status": "interrupted"}
    except Exception as error:  # noqa: BLE001 - whatever it was, the caller reads it in the result
        if debug:
            traceback.print_exc()
        plain = plain_error(error)
        console = console_for_people()
        console.print(f"error: {plain}", style="red", markup=False, highlight=False, soft_wrap=True)
        return exit_code_of(plain), {"status": "failed", "error": kind_of(plain), "message": str(plain)}
