"""What a checker found wrong."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken: the ``number`` of the property, as the checker's docstring counts them."""

    number: int
    told: str

    def __str__(self) -> str:
        return f"property {self.number}: {self.told}"
