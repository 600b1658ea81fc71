"""Settings of the Spark applications that tests start, for short runs with few rows."""

from pathlib import Path

from tests.jvms import INTERPRETED

SETTINGS = {**INTERPRETED, "spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"}
ARGUMENTS = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
"""The settings as arguments of spark-submit."""


def conf_folder(folder: Path) -> str:
    """Write the settings into a folder, and return it as a value of SPARK_CONF_DIR."""
    folder.mkdir()
    (folder / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in SETTINGS.items()))
    return str(folder)
