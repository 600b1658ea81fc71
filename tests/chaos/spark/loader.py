"""A driver that loads small DataFrames one after the other, and retries those whose result is unknown.

``python -m tests.chaos.spark.loader WORLD NAME SEED CONF``; it ends when the world's file ``stop`` exists.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from spark_cas import route
from spark_cas.core.plan import Completion
from spark_cas.core.recorded_fields import from_json
from spark_cas.log.backend import Backend
from tests.chaos.loading import Told
from tests.chaos.spark.session import FAILURES, start_session, told_by, writing
from tests.chaos.world import World
from tests.chaos.writer import KEYS, Writer
from tests.history.operations import INFO, OK
from tests.history.recorder import Recorder

CHUNK_RECORDS = 3
_AGAIN_SHARE, _CHANGED_SHARE = 0.2, 0.25
_LAST_TRIES = 5
_FRAME = pa.schema([("partition", pa.int32()), ("key", pa.binary()), ("value", pa.binary())])


class Loader(Writer):
    """A writer whose appends are Spark loads: of a few chunks in each partition, or atomic."""

    LOOK_SHARE = 0.9

    def __init__(self, spark: SparkSession, log: Backend, world: World, recorder: Recorder, seed: int) -> None:
        super().__init__(log, world, recorder, seed)
        self._spark = spark
        self._report = world.folder / f"{recorder.process}.report"
        self._unheard: dict[str, dict[str, Any]] = {}

    def run(self, stopped: Callable[[], bool]) -> None:
        """Run as a writer.

        After the last fault, retry each load until its result is known, up to `_LAST_TRIES` times.
        """
        super().run(stopped)
        for arguments in list(self._unheard.values()):
            self.ask(arguments, _LAST_TRIES)
        if self._unheard:
            raise RuntimeError(f"without any fault, no end of these loads is known: {', '.join(self._unheard)}")

    def told(self, arguments: dict[str, Any], run: str) -> Told:
        told = self._load(arguments)
        if told[0] == INFO:
            self._unheard[arguments["job"]] = arguments
        else:
            self._unheard.pop(arguments["job"], None)
        return told

    def acknowledged(self, arguments: dict[str, Any]) -> None:
        drawn = self._chance.random()
        if drawn < _AGAIN_SHARE:
            self.ask(arguments, 1)
        elif drawn < _AGAIN_SHARE + _CHANGED_SHARE:
            self.ask_for_others(arguments)

    def next_append(self) -> dict[str, Any]:
        self._count += 1
        job = f"{self._recorder.process}-{self._count}"
        [way] = self._chance.choices(["load", "blind", "key", "whole"], [40, 20, 15, 25])
        chosen = sorted(self._chance.sample(sorted(self._ends), 2 if way == "whole" else self._chance.randint(1, 2)))
        # Name all partitions, because a load expects the current end offset of a partition that is not named.
        expected: dict[int, int | None] = dict.fromkeys(self._ends)
        if way != "blind":
            expected |= {at: self._ends[at] for at in chosen}
        rows = range(self._chance.randint(1, 4) if way == "whole" else self._chance.randint(4, 11))
        return {
            "job": job,
            "records": {
                str(at): [[f"k{self._chance.randrange(KEYS)}", f"{job}/{at}/{row:02}"] for row in rows]
                for at in chosen
            },
            "expected": {str(at): offset for at, offset in expected.items()},
            "compare": "key" if way == "key" else "partition",
            "chunk_records": None if way == "whole" else CHUNK_RECORDS,
        }

    def _load(self, arguments: dict[str, Any]) -> Told:
        options = writing(self._world, self._recorder.process, arguments["job"])
        options |= {"expectedOffsets": json.dumps(arguments["expected"]), "compare": arguments["compare"]}
        if arguments["chunk_records"] is None:
            options |= {"atomic": "load"}
        else:
            # No chunk may end early because a process was frozen.
            options |= {"maxRecordsPerChunk": str(arguments["chunk_records"]), "maxSecondsPerChunk": "1000"}
        self._report.unlink(missing_ok=True)
        try:
            routed = route(self._frame(arguments["records"]), options, by="partition", order_by=["value"])
            write = routed.write.format("conditional-log").mode("append")
            write.options(**options, report=str(self._report)).save()
        except FAILURES as error:
            return told_by(error, self._spark)
        done = from_json(Completion, self._report.read_text())
        each = [result.progress for result in done.partitions]
        return OK, {"ranges": {str(it.partition): [it.base_offset, it.end_offset] for it in each}}

    def _frame(self, records: dict[str, list[list[str]]]) -> DataFrame:
        rows = [
            {"partition": int(at), "key": key.encode(), "value": value.encode()}
            for at, each in records.items()
            for key, value in each
        ]
        return self._spark.createDataFrame(pa.Table.from_pylist(rows, schema=_FRAME))


def main(folder: str, name: str, seed: str, conf: str) -> None:
    """Load until the world stops."""
    world = World.read(Path(folder))
    stopped = world.stopped()
    spark = start_session(name, conf, world)
    with Recorder(world.history_of(name), name) as recorder, world.open(name) as log:
        Loader(spark, log, world, recorder, int(seed)).run(stopped)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
