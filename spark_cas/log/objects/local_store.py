"""A directory as a store. Reads go into Arrow's memory, and listings read only names.

It replaces obstore's local store, whose threads each keep memory of earlier reads (up to 120 MiB per process). That
store also reads the metadata of each listed file. For 100,000 files a listing takes 0.7 s there and 0.08 s here.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from spark_cas.core.put_reply import PutReply
from spark_cas.log.objects import local
from spark_cas.log.objects.store_errors import require_size


class LocalStore:
    """Implement `spark_cas.log.objects.store.Store` below a directory. A missing directory is an empty store."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folder = local.LocalFolder(root)

    def create(self, path: str, data: bytes | memoryview) -> PutReply:
        return self._folder.create(path, data)

    def overwrite(self, path: str, data: bytes) -> None:
        self._folder.overwrite(path, data)

    def settle(self, path: str) -> None:
        self._folder.settle(path)

    def get(self, path: str) -> memoryview | None:
        return self.get_end(path, None)

    def get_end(self, path: str, size: int | None) -> memoryview | None:
        """Return the last ``size`` bytes of a file, all bytes if ``size`` is None; None if there is no file."""
        file = local.inside(self._root, path)
        result = _end_of(file, size)
        return _end_of(file, size) if result is None and self._folder.recheck(path) else result

    def below(self, prefix: str, after: str | None = None) -> list[str]:
        folder = local.inside(self._root, prefix)
        try:
            return sorted(_files_below(folder, f"{prefix}/", after or ""))
        except OSError as error:
            raise local.plain(error.errno, f"listing {folder}") from None

    def folders(self, prefix: str) -> list[str]:
        folder = local.inside(self._root, prefix)
        try:
            return sorted(_names_in(folder))
        except OSError as error:
            raise local.plain(error.errno, f"listing {folder}") from None

    def delete(self, paths: list[str]) -> None:
        for path in paths:
            file = local.inside(self._root, path)
            try:
                file.unlink(missing_ok=True)
            except OSError as error:
                raise local.plain(error.errno, f"deleting {file}") from None


def _end_of(file: Path, size: int | None) -> memoryview | None:
    """Return the last bytes of a file, all if ``size`` is None; None if there is no file."""
    try:
        handle = os.open(file, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise local.plain(error.errno, f"reading {file}") from None
    try:
        end = os.fstat(handle).st_size
        if size is None:
            require_size(end, str(file))
        start = 0 if size is None else max(0, end - size)
        return _read(handle, start, end)
    except OSError as error:
        raise local.plain(error.errno, f"reading {file}") from None
    finally:
        os.close(handle)


def _read(handle: int, start: int, end: int) -> memoryview:
    """Read the bytes from one position to another, or up to the end of the file."""
    read = memoryview(pa.allocate_buffer(end - start)).cast("B")
    at = 0
    while at < len(read):
        count = os.preadv(handle, [read[at:]], start + at)
        if count == 0:
            break  # the file was truncated meanwhile
        at += count
    return read[:at]


def _names_in(folder: Path) -> Iterator[str]:
    """Yield the names in a folder. Skip folders without any file below them, as object stores do."""
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False) or any(_files_below(folder / entry.name, "", "")):
                yield entry.name


def _files_below(folder: Path, prefix: str, after: str) -> Iterator[str]:
    """Yield the paths of files that sort after ``after``. Symbolic links to folders are not followed."""
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            path = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from _files_below(folder / entry.name, f"{path}/", after)
            elif path > after:
                yield path
