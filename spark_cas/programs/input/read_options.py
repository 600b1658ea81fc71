"""Read options in the form of Spark's readers: case-insensitive names, text values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.time_patterns import require_exact_pattern

_FLAGS = {"true": True, "false": False}
TIME_OPTIONS = ("timeZone", "dateFormat", "timestampFormat", "timestampNTZFormat")


@dataclass(frozen=True, slots=True)
class ValueFormats:
    """Formats for the conversion of text to typed values."""

    locale: str | None = None
    time_zone: str = "UTC"
    """Time zone of timestamps without one."""
    date: str | None = None
    timestamp: str | None = None
    timestamp_ntz: str | None = None

    def pattern(self, kind: str) -> dict[str, str]:
        """Return the read option with the Java pattern of a type; empty if there is none."""
        option, pattern = {
            "date": ("dateFormat", self.date),
            "timestamp": ("timestampFormat", self.timestamp),
            "timestamp_ntz": ("timestampNTZFormat", self.timestamp_ntz),
        }.get(kind, ("", None))
        return {option: pattern} if pattern else {}


class ReadOptions:
    """Read options of a load, limited to those that the format supports."""

    def __init__(
        self, options: Mapping[str, str], names: Sequence[str], other_names: Mapping[str, str] | None = None
    ) -> None:
        known = {name.lower(): name for name in names}
        known |= {other.lower(): name for other, name in (other_names or {}).items()}
        self._values: dict[str, str] = {}
        for option, value in options.items():
            name = known.get(option.lower())
            if name is None:
                honoured = ", ".join(sorted([*names, *(other_names or {})]))
                raise UsageError(f"read option {option}: not known for this format; expected one of {honoured}.")
            if self._values.setdefault(name, value) != value:
                raise UsageError(f"read option {option}: occurs twice, with different values.")

    def text(self, name: str, default: str) -> str:
        """Return the value of an option."""
        return self._values.get(name, default)

    def optional(self, name: str) -> str | None:
        """Return the value of an option; None if it is not set."""
        return self._values.get(name) or None

    def flag(self, name: str, *, default: bool) -> bool:
        """Return the value of a boolean option."""
        value = self._values.get(name)
        if value is None:
            return default
        if value.lower() not in _FLAGS:
            raise UsageError(f"read option {name}: expected true or false, not {value!r}.")
        return _FLAGS[value.lower()]

    def require_fail_fast(self) -> None:
        """Reject modes other than FAILFAST, because they change or drop rows."""
        mode = self.text("mode", "FAILFAST")
        if mode.upper() != "FAILFAST":
            raise UsageError(f"read option mode: expected FAILFAST, not {mode!r}: a load keeps each row or fails.")

    def value_formats(self) -> ValueFormats:
        """Return the formats of typed values. Raises UsageError for a pattern that is not exact."""
        for option in TIME_OPTIONS[1:]:
            if pattern := self.optional(option):
                require_exact_pattern(option, pattern)
        return ValueFormats(
            locale=self.optional("locale"),
            time_zone=self.text("timeZone", "UTC"),
            date=self.optional("dateFormat"),
            timestamp=self.optional("timestampFormat"),
            timestamp_ntz=self.optional("timestampNTZFormat"),
        )
