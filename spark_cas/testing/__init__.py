"""Test support: the contract that every backend fulfils, fault injection, random records."""

import pytest

# With rewriting, failed assertions show the compared values, as in a test file.
pytest.register_assert_rewrite("spark_cas.testing.contract", "spark_cas.testing.loads", "spark_cas.testing.writing")
