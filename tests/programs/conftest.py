"""Fixtures of the programs' tests."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.programs.loading import Loader

_WITHOUT_PYSPARK_ZIP = (
    'import sys; sys.path[:] = [each for each in sys.path if not each.endswith("pyspark.zip")]'  # as the Makefile
)


@pytest.fixture
def load(spark, capsys, path):
    yield Loader(spark, capsys, path)
    spark.sparkContext._jsc.sc().clearJobGroup()


@pytest.fixture(scope="session")
def dependencies_python(tmp_path_factory):
    """A Python that has the dependencies of spark_cas and pyspark, but not spark_cas itself.

    It finds the packages of the test environment. It does not process the path files there, so it does not find the
    editable install.
    """
    folder = tmp_path_factory.mktemp("dependencies") / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    python = folder / "bin" / "python3"
    purelib = "import sysconfig; print(sysconfig.get_path('purelib'))"
    answer = subprocess.run([python, "-c", purelib], check=True, capture_output=True, text=True, timeout=60)
    lines = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), _WITHOUT_PYSPARK_ZIP]
    (Path(answer.stdout.strip()) / "dependencies.pth").write_text("\n".join(lines) + "\n")
    imports = [python, "-I", "-c", "import pyspark, pyarrow, obstore, confluent_kafka, spark_cas"]
    absent = subprocess.run(imports, check=False, capture_output=True, text=True, timeout=60)
    assert absent.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'spark_cas'"
    return python
