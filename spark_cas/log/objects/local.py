"""A directory as a store: atomic, durable file creation, reads into Arrow's memory, and listings of names alone.

To create a file, write a staged file, sync it, link it, then sync the folders. A hard link fails if its name exists,
so the link is the compare-and-swap. When `create` returns CREATED, the disk has the bytes, the name and each folder
from the root on. They survive a power failure.

obstore's local store has threads that each keep memory of earlier reads (up to 120 MiB per process). It also reads
the metadata of each listed file: for 100,000 files a listing takes 0.7 s there and 0.08 s here.
"""

import errno
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa

from spark_cas.core.errors import AccessDeniedError, FormatError, StorageError, UnknownOutcomeError
from spark_cas.log import timing
from spark_cas.log.objects import paths
from spark_cas.log.objects.store_replies import PutReply, require_size

_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS})
"""Error numbers of file systems without hard links."""

_REFUSED = _NO_LINKS | {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EMLINK, errno.ENOENT}
"""Error numbers that prove that no link was created."""


class LocalStore:
    """Implement `spark_cas.log.objects.store.Store` below a directory. A missing directory is an empty store.

    Only the current user gets access to the files.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._staging = root / paths.STAGING
        self._ready: set[Path] = set()
        self._swept = False

    def create(self, path: str, data: bytes | memoryview) -> PutReply:
        """Create a file with these bytes unless it exists.

        Raises:
            StorageError: if the file was not created
            UnknownOutcomeError: if the folder could not be synced to disk
        """
        target = inside(self._root, path)
        staged = self._stage(target, data, sync=True)
        try:
            os.link(staged, target, follow_symlinks=False)
            reply = PutReply.CREATED
        except FileExistsError:
            reply = PutReply.ALREADY_EXISTS
        except OSError as error:
            if error.errno in _REFUSED:
                raise plain(error.errno, f"writing {target}") from None
            reply = PutReply.UNCLEAR  # A network file system may have created the link and lost the reply.
        finally:
            _remove(staged)
        try:
            # Sync after ALREADY_EXISTS too. A reader of that file needs it to survive a power failure.
            _sync_folder(target.parent)
        except OSError as error:
            raise UnknownOutcomeError(
                f"writing {target}: the disk failed ({os.strerror(error.errno or 0)}) before it had stored the "
                f"new name. Fix the disk, then run the same job again."
            ) from None
        return reply

    def overwrite(self, path: str, data: bytes) -> None:
        """Create or replace a file. A power failure may lose it. Raises StorageError."""
        target = inside(self._root, path)
        staged = self._stage(target, data, sync=False)
        try:
            staged.replace(target)
        except OSError as error:
            _remove(staged)
            raise plain(error.errno, f"writing {target}") from None

    def settle(self, path: str) -> None:
        """Sync the folder of a file to disk, with all names in it.

        The writer of the file may have crashed before it synced the name. It synced the bytes before it created the
        link.

        Raises:
            StorageError: if the sync fails on a writable file system
        """
        folder = inside(self._root, path).parent
        try:
            _sync_folder(folder)
        except FileNotFoundError:
            pass  # The folder does not exist.
        except OSError as error:
            if error.errno != errno.EROFS:  # no new chunk here depends on the file
                raise plain(error.errno, f"syncing {folder}") from None

    def get(self, path: str) -> memoryview | None:
        return self.get_end(path, None)

    def get_end(self, path: str, size: int | None) -> memoryview | None:
        file = inside(self._root, path)
        result = _end_of(file, size)
        return _end_of(file, size) if result is None and self._recheck(path) else result

    def below(self, prefix: str, after: str | None = None) -> list[str]:
        folder = inside(self._root, prefix)
        with _plainly(f"listing {folder}"):
            return sorted(_files_below(folder, f"{prefix}/", after or ""))

    def folders(self, prefix: str) -> list[str]:
        folder = inside(self._root, prefix)
        with _plainly(f"listing {folder}"):
            return sorted(_names_in(folder))

    def delete(self, paths: list[str]) -> None:
        for path in paths:
            file = inside(self._root, path)
            with _plainly(f"deleting {file}"):
                file.unlink(missing_ok=True)

    def _recheck(self, path: str) -> bool:
        """Open the folder of a missing file to refresh a cached listing. Return whether the folder exists.

        A network file system may cache for a minute that a name is free. It contacts its server when a client opens
        the folder (close-to-open consistency).
        """
        try:
            os.close(os.open(inside(self._root, path).parent, os.O_RDONLY | os.O_DIRECTORY))
        except OSError:
            return False
        return True

    def _stage(self, target: Path, data: bytes | memoryview, *, sync: bool) -> Path:
        """Write the bytes to a new file in the staging folder. Create the target's folder if necessary."""
        staged = self._staging / uuid.uuid4().hex
        try:
            self._make_ready(self._staging)
            self._make_ready(target.parent)
            self._sweep()
            _write(staged, data, sync=sync)
        except OSError as error:
            _remove(staged)
            raise plain(error.errno, f"writing {target}") from None
        return staged

    def _make_ready(self, folder: Path) -> None:
        """Create a folder of the log if necessary, sync its name, and reject symbolic links. Done once per folder."""
        if folder in self._ready or (not folder.is_relative_to(self._root) and folder.is_dir()):
            return
        self._make_ready(folder.parent)
        made = not folder.is_dir()
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.is_symlink():
            raise FormatError("a folder of the log is a symbolic link, which could lead out of it. Remove it.")
        if made or folder != self._root:
            # Sync existing folders too. Their creator may have crashed before the sync.
            _sync_folder(folder.parent)
        self._ready.add(folder)

    def _sweep(self) -> None:
        """Remove old staged files, once per instance. Their writers have most likely crashed.

        If such a writer is still running, its append fails without a change to the log.
        """
        if self._swept:
            return
        self._swept = True
        oldest = time.time() - timing.current().straggler_age
        with os.scandir(self._staging) as entries:
            for entry in entries:
                with suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_mtime < oldest:
                        _remove(Path(entry.path))


def check_root(root: Path) -> None:
    """Check that the root of a log is a directory without symbolic links, or does not exist.

    A symbolic link could redirect writes to a place outside the root.

    Raises:
        FormatError: if the root is a file, or a folder in it is a symbolic link
    """
    with _plainly(f"opening {root}"):
        if not root.exists():
            return
        if not root.is_dir():
            raise FormatError(f"{root} is a file. Give the address of a log, or of a new directory.")
        with os.scandir(root) as entries:
            linked = any(entry.is_symlink() for entry in entries)
    if linked:
        raise FormatError(f"{root} holds symbolic links, which could lead out of it. Remove them.")


def inside(root: Path, path: str) -> Path:
    """Return the file for a path of the log. Raises ValueError if it is not below the root."""
    target = root / path
    if ".." in target.parts or not target.is_relative_to(root):
        raise ValueError("a path must not lead out of the log's directory")
    return target


def _write(path: Path, data: bytes | memoryview, *, sync: bool) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        if sync:
            os.fsync(handle)
    finally:
        os.close(handle)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


@contextmanager
def _plainly(doing: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise plain(error.errno, doing) from None


def plain(number: int | None, doing: str) -> StorageError:
    """Return the StorageError for an error number of the file system, while ``doing`` an operation on a path."""
    cause, remedy = {
        errno.ENOSPC: ("the disk is full", "Free some space"),
        errno.EDQUOT: ("the disk quota is used up", "Free some space"),
        errno.EFBIG: ("the file size limit is reached", "Raise it"),
        errno.EACCES: ("permission denied", "Give this user the right to"),
        errno.EROFS: ("the file system is read-only", "Use another"),
        **dict.fromkeys(_NO_LINKS, ("the file system refused, perhaps because it has no hard links", "Use another")),
    }.get(
        number or 0,
        (f"the file system failed ({os.strerror(number) if number else 'no reason'})", "Correct the cause"),
    )
    kind = AccessDeniedError if number in (errno.EACCES, errno.EROFS) else StorageError
    return kind(f"{doing}: {cause}. {remedy}, then run the same job again.")


def _end_of(file: Path, size: int | None) -> memoryview | None:
    """Return the last bytes of a file, all if ``size`` is None; None if there is no file."""
    with _plainly(f"reading {file}"):
        try:
            source = file.open("rb")
        except (FileNotFoundError, NotADirectoryError):
            return None
        with source:
            end = os.fstat(source.fileno()).st_size
            if size is None:
                require_size(end, str(file))
            start = source.seek(0 if size is None else max(0, end - size))
            read = memoryview(pa.allocate_buffer(end - start)).cast("B")
            return read[: source.readinto(read)]  # it is shorter if the file was truncated meanwhile


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
