"""The rejection of a run by one of its tasks."""

import json
from dataclasses import asdict, dataclass
from typing import Self

from spark_cas.core.errors import ConditionalLogError, ErrorKind, FormatError, error_from_line


@dataclass(frozen=True, slots=True)
class Rejection:
    """A definite error of one task, as data: it ends the whole run."""

    kind: str
    message: str
    """The text of the error after its kind, with its fields."""
    partitions: tuple[int, ...]
    """The log partitions of the rows that the task had read before the error."""

    @classmethod
    def of(cls, error: ConditionalLogError, partitions: tuple[int, ...]) -> Self:
        """Return the rejection of a task by this error."""
        return cls(error.kind, str(error).removeprefix(f"[{error.kind}] "), partitions)

    def error(self) -> ConditionalLogError:
        """Return the error with its fields."""
        return error_from_line(self.kind, self.message)


def rejection_to_json(rejection: Rejection) -> str:
    """Return a rejection as one line of JSON."""
    return json.dumps(asdict(rejection), separators=(",", ":"))


def rejection_from_json(text: str) -> Rejection:
    """Read the output of `rejection_to_json`. Raises FormatError."""
    try:
        fields = json.loads(text)
        kind = ErrorKind(fields["kind"])
        return Rejection(kind, str(fields["message"]), tuple(int(each) for each in fields["partitions"]))
    except (AttributeError, KeyError, TypeError, ValueError):
        raise FormatError(
            "the record of a cancelled run is not in the format of this spark_cas. A newer version may have written "
            "it."
        ) from None
