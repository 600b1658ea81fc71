"""Helpers that run streaming queries from files into logs, and that replay batches."""

import os
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import functions as sf

from spark_cas import error_from_text, open_log
from tests.support.writing import values_in

SECONDS = 120
FORMAT = "conditional-log"


class Source:
    """Text files in a folder, by default one per batch. Each line holds a key and a value."""

    def __init__(self, spark, folder: Path) -> None:
        self._spark = spark
        self.folder = folder
        self._files = 0
        folder.mkdir()

    def add(self, name: str, *keys: str) -> list[str]:
        """Add a file with one row per key. Return the values of the rows, which are unique."""
        staged = self.folder.with_name(f"staged-{name}")
        lines = [f"{key} {name}-{at:03d}" for at, key in enumerate(keys)]
        staged.write_text("\n".join(lines) + "\n")
        self._files += 1
        os.utime(staged, (self._files, self._files))  # the source reads the oldest file first
        staged.rename(self.folder / name)
        return [line.split()[1] for line in lines]

    def stream(self, files: int = 1):
        """Return a streaming DataFrame with the given number of files per batch."""
        lines = self._spark.readStream.format("text").option("maxFilesPerTrigger", files).load(str(self.folder))
        parts = sf.split("value", " ")
        return lines.select(parts[0].alias("key"), parts[1].alias("value"))


def run(frame, checkpoint, path=None, **options):
    """Run a query until it has read all files. If it fails with an error of the package, raise that error."""
    writer = frame.writeStream.format(FORMAT).outputMode("append").trigger(availableNow=True)
    query = writer.option("checkpointLocation", checkpoint).options(**options).start(path)
    finish(query)


def finish(query):
    try:
        assert query.awaitTermination(SECONDS), query.status
    except PySparkException as failure:
        raise (error_from_text(str(failure)) or failure) from None


def keys(count, of=7):
    return [f"k{at % of}" for at in range(count)]


def values_of(path):
    with open_log(path) as log:
        return sorted(value for partition in range(log.layout().partitions) for value in values_in(log, partition))


def forget(checkpoint, batch):
    """Remove a batch and all later batches from a checkpoint, as if they had never begun."""
    for folder in ("offsets", "commits", "sources/0"):
        for file in Path(checkpoint, folder).iterdir():
            if file.name.lstrip(".").split(".")[0].isdigit() and int(file.name.lstrip(".").split(".")[0]) >= batch:
                file.unlink()


def replay(checkpoint, batch):
    """Make the query replay a completed batch, as if the driver was killed before it recorded the commit."""
    Path(checkpoint, "commits", str(batch)).unlink()
    Path(checkpoint, "commits", f".{batch}.crc").unlink(missing_ok=True)
