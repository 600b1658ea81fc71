"""Short ways to run streaming queries into logs, file by file, and to let them do a batch again."""

import os
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import functions as sf

from spark_cas import error_from_text, open_log
from spark_cas.testing.writing import values_in

SECONDS = 120
FORMAT = "conditional-log"


class Source:
    """Files of lines in a folder, one file a batch: each line is key and value."""

    def __init__(self, spark, folder: Path) -> None:
        self._spark = spark
        self.folder = folder
        self._files = 0
        folder.mkdir()

    def add(self, name: str, *keys: str) -> list[str]:
        """A file of rows, one for each key; returns their values, which tell them apart."""
        staged = self.folder.with_name(f"staged-{name}")
        lines = [f"{key} {name}-{at:03d}" for at, key in enumerate(keys)]
        staged.write_text("\n".join(lines) + "\n")
        self._files += 1
        os.utime(staged, (self._files, self._files))  # the source takes the oldest first
        staged.rename(self.folder / name)
        return [line.split()[1] for line in lines]

    def stream(self, files: int = 1):
        """Of so many files a batch."""
        lines = self._spark.readStream.format("text").option("maxFilesPerTrigger", files).load(str(self.folder))
        parts = sf.split("value", " ")
        return lines.select(parts[0].alias("key"), parts[1].alias("value"))


def run(frame, checkpoint, path=None, **options):
    """A query that does all there is and ends; an error of ours as what it is."""
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
    """Put a checkpoint back to before a batch was begun."""
    for folder in ("offsets", "commits", "sources/0"):
        for file in Path(checkpoint, folder).iterdir():
            if file.name.lstrip(".").split(".")[0].isdigit() and int(file.name.lstrip(".").split(".")[0]) >= batch:
                file.unlink()


def replay(checkpoint, batch):
    """Let the query do a batch again that it has done: as if it was killed before it noted that."""
    Path(checkpoint, "commits", str(batch)).unlink()
    Path(checkpoint, "commits", f".{batch}.crc").unlink(missing_ok=True)
