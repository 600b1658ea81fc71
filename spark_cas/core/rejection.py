"""The rejection of a run by one of its tasks."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from spark_cas.core.appended_rows import with_sentence
from spark_cas.core.errors import ERRORS_BY_KIND, ConditionalLogError, ErrorKind, FormatError


@dataclass(frozen=True, slots=True)
class Rejection:
    """A definite error of one task, as data: it ends the whole run."""

    kind: str
    message: str
    partitions: tuple[int, ...]
    """The log partitions of the rows that the task had read before the error."""

    def error(self, message: str | None = None) -> ConditionalLogError:
        """Return the error of this kind, with another message if one is given."""
        return ERRORS_BY_KIND[ErrorKind(self.kind)](self.message if message is None else message)


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


def with_appended_rows(error: ConditionalLogError, rows: Mapping[int, int]) -> ConditionalLogError:
    """Return the error with a last sentence that reports the rows which the run appended, by partition."""
    return type(error)(with_sentence(error.message, rows))
