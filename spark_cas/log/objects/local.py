"""Creating a file so that it is whole and durable, or not there: staged, synced, linked, and the folders synced.

A hard link fails when its name exists, so the link is the compare-and-swap. Once `create` says CREATED the
bytes, the name and every folder from the root on are on the disk: a power cut does not take them.
"""

import errno
import os
import time
import uuid
from contextlib import suppress
from pathlib import Path

from spark_cas.core.errors import FormatError, StorageError, UnknownOutcomeError
from spark_cas.core.put_reply import PutReply
from spark_cas.log.objects import paths

STAGED_SECONDS = 3600.0
"""What lies staged for longer was left by a writer that died. One that still lives fails cleanly."""


_REFUSED = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EMLINK, errno.ENOENT, errno.ENOTSUP}
)
"""Errors of a link that prove that it was not made."""


class LocalFolder:
    """Writes files below the root of a log. Everything that it makes is for this user alone."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._staging = root / paths.STAGING
        self._ready: set[Path] = set()
        self._swept = False

    def create(self, path: str, data: bytes | memoryview) -> PutReply:
        """Create a file with these bytes unless it exists.

        Raises StorageError when nothing was created, UnknownOutcomeError when that did not reach the disk.
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
            reply = PutReply.UNCLEAR  # A network file system may have made the link and lost its reply.
        finally:
            _remove(staged)
        try:
            # Also after a refusal: who reads the winner's file next must find it after a power cut too.
            _sync_folder(target.parent)
        except OSError as error:
            raise UnknownOutcomeError(
                f"writing {target}: the disk failed ({os.strerror(error.errno or 0)}) before it had taken the new "
                f"name. Mend it, then run the same job again."
            ) from None
        return reply

    def overwrite(self, path: str, data: bytes) -> None:
        """Create a file or replace one. It may be lost in a power cut. Raises StorageError."""
        target = inside(self._root, path)
        staged = self._stage(target, data, sync=False)
        try:
            staged.replace(target)
        except OSError as error:
            _remove(staged)
            raise plain(error.errno, f"writing {target}") from None

    def settle(self, path: str) -> None:
        """See to it that the name of a file that is there, and those beside it, are on the disk.

        Who linked it may have died before that; its bytes were there before the link. Raises StorageError.
        """
        folder = inside(self._root, path).parent
        try:
            _sync_folder(folder)
        except FileNotFoundError:
            pass  # Nothing lies there.
        except OSError as error:
            if error.errno != errno.EROFS:  # Nobody writes to it from here, so nothing comes to rest on it.
                raise plain(error.errno, f"syncing {folder}") from None

    def look_again(self, path: str) -> bool:
        """After a file was not found: whether its folder is there, opened, so that what is cached of it is renewed.

        A network file system may remember for a minute that a name was free. It asks its server when a folder is
        opened (close-to-open).
        """
        try:
            os.close(os.open(inside(self._root, path).parent, os.O_RDONLY | os.O_DIRECTORY))
        except OSError:
            return False
        return True

    def _stage(self, target: Path, data: bytes | memoryview, *, sync: bool) -> Path:
        """The bytes under a name of their own; the target's folder is there then too."""
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
        """See to it, once, that a folder of the log is there, on the disk with its name, and no link."""
        if folder in self._ready or (not folder.is_relative_to(self._root) and folder.is_dir()):
            return
        self._make_ready(folder.parent)
        made = not folder.is_dir()
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.is_symlink():
            raise FormatError("a folder of the log is a symbolic link, which could lead out of it. Remove it.")
        if made or folder != self._root:
            # Also when it was there: who made it may not have come to this.
            _sync_folder(folder.parent)
        self._ready.add(folder)

    def _sweep(self) -> None:
        """Remove, once, what writers that died left staged."""
        if self._swept:
            return
        self._swept = True
        oldest = time.time() - STAGED_SECONDS
        with os.scandir(self._staging) as entries:
            for entry in entries:
                with suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_mtime < oldest:
                        _remove(Path(entry.path))


def check_root(root: Path) -> None:
    """FormatError when the address of a log is a file, or one of the log's folders is a symbolic link.

    A link would lead writes out of the root. StorageError when the directory cannot be looked at.
    """
    try:
        if not root.exists():
            return
        if not root.is_dir():
            raise FormatError(f"{root} is a file. Give the address of a log, or of a new directory.")
        with os.scandir(root) as entries:
            linked = any(entry.is_symlink() for entry in entries)
    except OSError as error:
        raise plain(error.errno, f"opening {root}") from None
    if linked:
        raise FormatError(f"{root} holds symbolic links, which could lead out of it. Remove them.")


def inside(root: Path, path: str) -> Path:
    """Where a path of the log lies. ValueError when that is not below its root."""
    target = root / path
    if ".." in target.parts or not target.is_relative_to(root):
        msg = "a path must not lead out of the log's directory"
        raise ValueError(msg)
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


def plain(number: int | None, doing: str) -> StorageError:
    """What to raise for an error of the file system, by its number; ``doing`` names the path."""
    cause, remedy = {
        errno.ENOSPC: ("the disk is full", "Free some space"),
        errno.EDQUOT: ("the disk quota is used up", "Free some space"),
        errno.EFBIG: ("the file size limit is reached", "Raise it"),
        errno.EACCES: ("permission denied", "Give this user the right to"),
        errno.EPERM: ("the file system refused, perhaps because it has no hard links", "Use another"),
        errno.EROFS: ("the file system is read-only", "Use another"),
    }.get(number or 0, (f"the file system failed ({os.strerror(number) if number else 'no reason'})", "Mend it"))
    return StorageError(f"{doing}: {cause}. {remedy}, then run the same job again.")
