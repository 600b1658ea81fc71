"""The file that takes what became of a load: tried before the rows are appended, and put there in one step."""

import errno
import os
import uuid
from pathlib import Path

_OF_THE_FOLDER = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY})
"""Its folder may not be written, or the file is a mount: it may itself be written all the same."""


def may_be_put(file: str) -> bool:
    """Whether a report can be put there, as far as can be seen: not over a folder."""
    if _is_no_file(file):
        return not Path(file).is_dir() and os.access(file, os.W_OK)
    path = _where(file)
    new = not path.exists() and path.parent.is_dir() and os.access(path.parent, os.W_OK | os.X_OK)
    return new or (path.is_file() and os.access(path, os.W_OK))


def clear(file: str) -> None:
    """Take away an earlier report: while a load runs nobody is to take that for its own. Raises OSError."""
    if _is_no_file(file):
        return
    path = _where(file)
    try:
        path.unlink(missing_ok=True)
    except OSError:
        path.write_text("")


def put(file: str, text: str) -> None:
    """Put a text into a file, in place of what was there: all or nothing, where its folder lets. Raises OSError."""
    if _is_no_file(file):
        Path(file).write_text(text, encoding="utf-8")
        return
    path = _where(file)
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
    """Whether it is a pipe, a device, or one's own output: written where it is, and never taken away."""
    return file.startswith(("/dev/", "/proc/")) or (Path(file).exists() and not Path(file).is_file())


def _where(file: str) -> Path:
    """Behind a link: who reads the file that it leads to is to find the report."""
    return Path(os.path.realpath(file))
