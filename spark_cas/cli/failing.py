"""The end of a command that failed."""

import sys
from typing import NoReturn

from rich.console import Console

from spark_cas.programs.errors import exit_code_of


def fail(error: Exception, code: int | None = None) -> NoReturn:
    """Print the error and exit, with ``code`` or else the exit code of the error."""
    Console(stderr=True).print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
    sys.exit(exit_code_of(error) if code is None else code)
