"""The programs that tests start: `make env` links them into the environment."""

import os
import shutil
import sysconfig


class MissingProgramError(Exception):
    """A program is neither in the environment nor on PATH."""


def executable(name: str) -> str:
    """Return the path of a program, from the environment or else from PATH. Raises MissingProgramError."""
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])
    program = shutil.which(name, path=path)
    if program is None:
        raise MissingProgramError(f"the program {name} is missing: run `make env`, which installs it")
    return program
