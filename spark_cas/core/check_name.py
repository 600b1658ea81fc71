"""Validation of names that become part of a path, a topic or an id."""

import re

from spark_cas.core.errors import OptionError

FRESH_JOB = "job-"
"""Prefix of the generated name of a job without one."""
LONGEST_NAME = 200
_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{LONGEST_NAME}}}")


def check_name(name: str, subject: str) -> str:
    """Return ``name`` if it is safe in paths and ids; raise OptionError for ``subject`` otherwise."""
    if _NAME.fullmatch(name) is None or name in (".", ".."):
        raise OptionError(
            f"{subject} must be 1 to {LONGEST_NAME} of the characters A-Z a-z 0-9 . _ - and not '.' or '..'. "
            "Choose another name."
        )
    return name


def is_fresh(job: str) -> bool:
    """Return whether a name of a job has the form of `spark_cas.log.load.planning.fresh_job_name`."""
    return re.fullmatch(f"{FRESH_JOB}[0-9a-f]{{12}}", job) is not None
