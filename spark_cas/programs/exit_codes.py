"""Exit codes of the programs. A scheduler can use them to decide whether to rerun a job."""

from enum import IntEnum

from spark_cas.core.errors import ConditionalLogError, InputChangedError, InputError, RefusedError


class ExitCode(IntEnum):
    """Exit code of a run."""

    COMPLETE = 0
    """The job is complete, by this run or an earlier one."""
    FAILED = 1
    """Any other failure. Rerun the same command."""
    USAGE = 2
    """The arguments or the input are invalid. Fix them before a rerun."""
    REFUSED = 3
    """A condition failed. None of the rejected rows is visible."""
    INPUT_CHANGED = 4
    """The rows differ from those with which the job began."""
    DIFFERENT = 5
    """The comparison finished and found differences. A rerun gives the same result."""
    INTERRUPTED = 130
    """Ctrl-C. The same command resumes the run."""


class UsageError(Exception):
    """The call is invalid in a way that no error of the log covers, such as an SQL expression."""


class RowCountError(Exception):
    """The log has a different number of rows than the files."""


def exit_code_of(error: BaseException) -> ExitCode:
    """Return the exit code for an error that ends a run."""
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
    """Return the stable token of an error of this project, or the class name of any other error."""
    return str(error.kind) if isinstance(error, ConditionalLogError) else type(error).__name__
