"""The versions in the report of `spark-cas doctor`."""

from importlib import metadata

import pytest

from spark_cas.cli.diagnosing import environment_findings, versions
from spark_cas.core.finding import Problem


@pytest.mark.parametrize(("installed", "supported"), [("3.5.9", False), ("4.0.0", True), ("4.4.0", False)])
def test_unsupported_spark_is_found(monkeypatch, installed, supported):
    monkeypatch.setattr(metadata, "version", lambda _: installed)
    problems = [each.problem for each in environment_findings({})]
    assert problems == ([] if supported else [Problem.UNSUPPORTED_VERSION])


def test_missing_spark_is_no_problem(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert [*environment_findings({})] == []
    assert versions()["pyspark"] is None


def test_platform_is_named(monkeypatch):
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    assert (versions()["platform"] or "").startswith("Databricks 17.3, ")
