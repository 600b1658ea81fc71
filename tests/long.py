"""Rows of a matrix that `make test` leaves to `make test-full`."""

import pytest


def full(*values, also=()):
    """The values of a parameter, each in the long suite alone, with what other marker it needs."""
    return [pytest.param(value, marks=[pytest.mark.full, *([also] if also else [])]) for value in values]
