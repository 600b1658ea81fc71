"""A driver that adds files to a folder and streams them into the log.

A restarted query resumes from its checkpoint.

``python -m tests.chaos.spark.streamer WORLD NAME SEED CONF``; after the world's file ``stop`` exists, it ends when
the query has committed all files.
"""

import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_cas import route
from tests.chaos.spark.session import FAILURES, start_session, told_by, writing
from tests.chaos.world import World
from tests.chaos.writer import KEYS
from tests.history.jobs import jobs_of
from tests.history.operations import INFO, OK, read_history
from tests.history.recorder import Recorder

CHUNK_RECORDS = 4
_MOST_UNCOMMITTED = 3
_PAUSE_SECONDS = 0.2


class Streamer:
    """The query and its source.

    Each file is an append in the history, which is acknowledged when the query has committed it.

    With ``whole``, each micro-batch becomes visible in all of its partitions atomically.
    """

    def __init__(
        self, spark: SparkSession, world: World, recorder: Recorder, partitions: int, seed: int, *, whole: bool
    ) -> None:
        self._spark = spark
        self._world = world
        self._recorder = recorder
        self._partitions = partitions
        self._whole = whole
        self._source = world.folder / f"{recorder.process}-source"
        self._source.mkdir(exist_ok=True)
        self._checkpoint = world.folder / f"{recorder.process}-checkpoint"
        before = [each for each in read_history(world.history) if each.process == recorder.process]
        self._chance = random.Random(f"{seed}/{recorder.process}/{len(before)}")
        self._count = 0
        self._uncommitted: dict[int, tuple[int, dict[str, Any]]] = {}
        for job in jobs_of(before).values():
            if job.acknowledged is None:
                self._add(dict(job.attempts[-1].arguments))
            self._count += 1

    def run(self, orphaned: Callable[[], bool]) -> None:
        """Add files and keep the query running until the world stops and all files are committed."""
        query = None
        while not orphaned() and (self._uncommitted or not self._world.stop.exists()):
            self._read()
            if len(self._uncommitted) < _MOST_UNCOMMITTED and not self._world.stop.exists():
                self._add(self._next_file())
                self._count += 1
            query = self._going(query)
            time.sleep(self._chance.uniform(0, 2 * self._world.pace) if query else _PAUSE_SECONDS)
        if query is not None:
            query.stop()

    def _next_file(self) -> dict[str, Any]:
        job = f"{self._recorder.process}-{self._count:06}"
        chosen = sorted(self._chance.sample(range(self._partitions), 2))
        rows = range(self._chance.randint(2, 10))
        return {
            "job": job,
            "records": {
                str(at): [[f"k{self._chance.randrange(KEYS)}", f"{job}/{at}/{row:02}"] for row in rows]
                for at in chosen
            },
            "expected": dict.fromkeys(map(str, chosen)),
            "compare": "partition",
            "chunk_records": None if self._whole else CHUNK_RECORDS,
        }

    def _add(self, arguments: dict[str, Any]) -> None:
        """Add the file with this number, unless an earlier process has added it."""
        number = self._count
        self._uncommitted[number] = self._recorder.start("append", arguments), arguments
        file = self._source / f"{number:06}.json"
        if file.exists():
            return
        hidden = self._source / f"_{file.name}"
        rows = [
            {"partition": int(at), "key": key, "value": value}
            for at, each in arguments["records"].items()
            for key, value in each
        ]
        hidden.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        os.utime(hidden, (number + 1, number + 1))  # the source reads the oldest file first
        hidden.rename(file)

    def _read(self) -> None:
        """Record the committed files as acknowledged."""
        below = _committed_files(self._checkpoint)
        for number in [each for each in self._uncommitted if each < below]:
            operation, _ = self._uncommitted.pop(number)
            self._recorder.finish(operation, OK, {})

    def _going(self, query: StreamingQuery | None) -> StreamingQuery | None:
        """Return the query, started if it is not running; None if the start failed."""
        if query is not None and query.isActive:
            return query
        try:
            if query is not None:
                query.awaitTermination()
            return self._start()
        except FAILURES as error:
            _, result = told_by(error, self._spark)
            for number, (operation, arguments) in self._uncommitted.items():
                # The query will resume: no error that stopped it rejects any of its rows.
                self._recorder.finish(operation, INFO, result)
                self._uncommitted[number] = self._recorder.start("append", arguments), arguments
        return None

    def _start(self) -> StreamingQuery:
        options = writing(self._world, self._recorder.process, self._recorder.process)
        options |= {"atomic": "load"} if self._whole else {"maxRecordsPerChunk": str(CHUNK_RECORDS)}
        files = self._spark.readStream.schema("partition int, key string, value string")
        rows = files.option("maxFilesPerTrigger", 1).json(str(self._source))
        # If Spark is killed at the wrong moment, one batch may contain two files. Their rows are then ordered by
        # value.
        writer = route(rows, options, by="partition").writeStream.format("conditional-log")
        writer = writer.outputMode("append").options(**options, orderBy="value")
        writer = writer.option("checkpointLocation", str(self._checkpoint)).queryName(self._recorder.process)
        return writer.trigger(processingTime="100 milliseconds").start()


def _committed_files(checkpoint: Path) -> int:
    """Return the number of files in committed batches, which is where the query would resume."""
    commits = checkpoint / "commits"
    batches = [int(each.name) for each in commits.iterdir() if each.name.isdigit()] if commits.exists() else []
    if not batches:
        return 0
    # The source numbers its files from 0, and a batch records its last file.
    offsets = (checkpoint / "offsets" / str(max(batches))).read_text().splitlines()
    return int(json.loads(offsets[-1])["logOffset"]) + 1


def main(folder: str, name: str, seed: str, conf: str) -> None:
    """Stream until the world stops. With even seeds, each micro-batch is an atomic load."""
    world = World.read(Path(folder))
    orphaned = world.orphaned()
    spark = start_session(name, conf, world)
    with world.open(name) as log:
        partitions = log.layout().partitions
    with Recorder(world.history_of(name), name) as recorder:
        Streamer(spark, world, recorder, partitions, int(seed), whole=int(seed) % 2 == 0).run(orphaned)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
