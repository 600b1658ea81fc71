"""Creating a file so that it is whole and durable, or not there: staged, synced, linked, and the folders synced.

A hard link fails when its name exists, so the link is the compare-and-swap. Once `create` says CREATED the
bytes, the name and every new folder above it are on the disk: a power cut does not take them.
"""

import errno
import os
import uuid
from pathlib import Path

from spark_cas.core.errors import FormatError, StorageError
from spark_cas.core.outcome import PutReply
from spark_cas.log.objects import paths


def create(root: Path, path: str, data: bytes | memoryview) -> PutReply:
    """Create ``root/path`` with these bytes unless it exists. Raises StorageError when nothing was created."""
    target = root / path
    staged = root / paths.STAGING / uuid.uuid4().hex
    try:
        _make_folder(root, staged.parent)
        _make_folder(root, target.parent)
        _write_synced(staged, data)
    except OSError as error:
        staged.unlink(missing_ok=True)
        raise _plain(error) from None
    try:
        os.link(staged, target, follow_symlinks=False)
    except FileExistsError:
        return PutReply.ALREADY_EXISTS
    except OSError as error:
        raise _plain(error) from None
    finally:
        staged.unlink(missing_ok=True)
        # Also after a refusal: who reads the winner's file next must find it after a power cut too.
        _sync_folder(target.parent)
    return PutReply.CREATED


def refuse_links(root: Path) -> None:
    """FormatError when the log's folders are symbolic links: they would lead writes out of the root."""
    if not root.is_dir():
        return
    with os.scandir(root) as entries:
        if any(entry.is_symlink() for entry in entries):
            raise FormatError("the log's directory holds symbolic links, which could lead out of it. Remove them.")


def _write_synced(path: Path, data: bytes | memoryview) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def _make_folder(root: Path, folder: Path) -> None:
    """Make a folder and those above it up to the root's own parents, each synced into the one above."""
    if folder.is_dir():
        if folder.is_symlink():
            raise FormatError("a folder of the log is a symbolic link, which could lead out of it. Remove it.")
        return
    _make_folder(root, folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _plain(error: OSError) -> StorageError:
    remedy = {
        errno.ENOSPC: "The disk is full: free some space",
        errno.EDQUOT: "The disk quota is used up: free some space",
        errno.EFBIG: "The file size limit is reached: raise it",
        errno.EACCES: "The directory cannot be written: give this user the right to",
        errno.EPERM: "The file system refused, perhaps because it has no hard links: use another",
        errno.EROFS: "The file system is read-only: use another",
    }.get(error.errno or 0, f"The file system failed ({os.strerror(error.errno or 0)}): mend it")
    return StorageError(f"writing to the log's directory: {remedy}, then run the same job again.")
