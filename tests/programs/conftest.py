"""Fixtures of the programs' tests."""

import pytest

from tests.programs.loading import Loader


@pytest.fixture
def load(spark, capsys, path):
    yield Loader(spark, capsys, path)
    spark.sparkContext._jsc.sc().clearJobGroup()
