"""The file for the result of a load: checked before the append, and replaced atomically."""

import errno
import os
import uuid
from pathlib import Path

_FILES_IN_MEMORY = "/dev/shm/"  # noqa: S108 (the caller chooses the name)
_OF_THE_FOLDER = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY})
"""Errors that prevent a file next to the report: the folder is not writable, or the file is a mount. The file itself
may still be writable."""


def may_be_put(file: str) -> bool:
    """Return whether the report can probably be written to ``file``, which may not be a folder."""
    if _is_no_file(file):
        return not Path(file).is_dir() and os.access(file, os.W_OK)
    path = Path(os.path.realpath(file))  # the target of a link is replaced
    new = not path.exists() and path.parent.is_dir() and os.access(path.parent, os.W_OK | os.X_OK)
    return new or (path.is_file() and os.access(path, os.W_OK))


def clear(file: str) -> None:
    """Remove an earlier report, so that no reader mistakes it for that of the running load. Raises OSError."""
    if _is_no_file(file):
        return
    path = Path(os.path.realpath(file))  # the target of a link is replaced
    try:
        path.unlink(missing_ok=True)
    except OSError:
        path.write_text("")


def put(file: str, text: str) -> None:
    """Write a text to a file, replacing its content. Raises OSError.

    The replacement is atomic if the folder is writable.
    """
    if _is_no_file(file):
        Path(file).write_text(text, encoding="utf-8")
        return
    path = Path(os.path.realpath(file))
    beside = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        if error.errno not in _OF_THE_FOLDER:
            raise
        path.write_text(text, encoding="utf-8")
    finally:
        beside.unlink(missing_ok=True)


def _is_no_file(file: str) -> bool:
    """Return whether the path is a pipe, a device or a standard stream: written in place and never removed."""
    is_system = file.startswith(("/dev/", "/proc/")) and not file.startswith(_FILES_IN_MEMORY)
    return is_system or (Path(file).exists() and not Path(file).is_file())
