"""Exit codes of the programs: a scheduler decides by them whether to run a job again."""

from enum import IntEnum

from spark_cas.core.errors import ConditionalLogError, InputChangedError, InputError, RefusedError


class ExitCode(IntEnum):
    """What became of a run."""

    COMPLETE = 0
    """The job is complete; it may have been before."""
    FAILED = 1
    """Anything else: run the same command again."""
    USAGE = 2
    """The call is wrong: fix it."""
    REFUSED = 3
    """A condition did not hold: nothing of what was refused is visible."""
    INPUT_CHANGED = 4
    """The rows are not those that the job began with."""
    DIFFERENT = 5
    """A comparison came to its end, and log and rows differ: running it again changes nothing."""
    INTERRUPTED = 130
    """Ctrl-C: the same command goes on where this one stopped."""


class UsageError(Exception):
    """The call is wrong in a way that no part of the log has a word for, such as an SQL expression."""


class RowCountError(Exception):
    """The log has another number of rows than the files."""


def exit_code_of(error: BaseException) -> ExitCode:
    """The exit code for an error that ends a run."""
    match error:
        case KeyboardInterrupt():
            return ExitCode.INTERRUPTED
        case RefusedError():
            return ExitCode.REFUSED
        case InputChangedError():
            return ExitCode.INPUT_CHANGED
        case InputError() | UsageError():
            return ExitCode.USAGE
        case RowCountError():
            return ExitCode.DIFFERENT
    return ExitCode.FAILED


def kind_of(error: BaseException) -> str:
    """The stable token of an error of this project; else the name of its class."""
    return str(error.kind) if isinstance(error, ConditionalLogError) else type(error).__name__
