"""Violations that a checker reports."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """A violated guarantee. ``number`` is that of the property in the docstring of `check_log`."""

    number: int
    told: str

    def __str__(self) -> str:
        return f"property {self.number}: {self.told}"
