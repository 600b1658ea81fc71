"""A check of an error by its class and its fields, which do not change with its text."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from spark_cas.core.errors import ConditionalLogError


@contextmanager
def raises(error: type[ConditionalLogError], **fields: Any) -> Iterator[pytest.ExceptionInfo[ConditionalLogError]]:
    """Require this error with these values of its fields. It may have more fields."""
    with pytest.raises(error) as caught:
        yield caught
    assert {name: caught.value.fields.get(name) for name in fields} == fields
