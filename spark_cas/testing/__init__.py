"""For tests of code over a log: the contract that every backend keeps, injected faults, random records."""

import pytest

# Their assertions then say what was compared, as in a test file.
pytest.register_assert_rewrite("spark_cas.testing.contract", "spark_cas.testing.loads", "spark_cas.testing.writing")
