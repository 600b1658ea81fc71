"""Cases of a matrix that `make test` leaves to `make test-full`."""

import pytest


def full(*values, also=()):
    """Return parameter values that only the long suite runs, with another marker if given."""
    return [pytest.param(value, marks=[pytest.mark.full, *([also] if also else [])]) for value in values]
