"""A temporary file with the rows of a task, so that a retry does not need Spark."""

import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Self

import pyarrow as pa


class Spool:
    """The rows of a task on local disk, as (partition, rows), in input order. Leaving the context deletes the file.

    Raises:
        OSError: The disk of the folder for temporary files is full.
    """

    def __init__(self, batches: Iterable[tuple[int, pa.RecordBatch]]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="spark-cas-")
        self._file = Path(self._folder.name, "rows.arrow")
        self._partitions: list[int] = []
        self.bytes = 0
        """The size of the rows in memory, which is about their size in requests."""
        try:
            self._write(batches)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __bool__(self) -> bool:
        return bool(self._partitions)

    def __iter__(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows from the start."""
        if self._partitions:
            with pa.memory_map(str(self._file)) as source, pa.ipc.open_stream(source) as reader:
                yield from zip(self._partitions, reader, strict=True)

    def close(self) -> None:
        self._folder.cleanup()

    def _write(self, batches: Iterable[tuple[int, pa.RecordBatch]]) -> None:
        rows = iter(batches)
        first = next(rows, None)
        if first is None:
            return
        with pa.OSFile(str(self._file), "wb") as sink, pa.ipc.new_stream(sink, first[1].schema) as writer:
            for partition, records in chain([first], rows):
                writer.write_batch(records)
                self._partitions.append(partition)
                self.bytes += records.nbytes
