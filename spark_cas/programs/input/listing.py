"""List the files of a load. Spark reads exactly these files, and later runs of the job compare their lists with it.

Python lists local paths, so a complete job needs no Spark session. Spark lists all other paths, with the file systems
and credentials of its session.
"""

import glob
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from spark_cas.core.input_list import InputFile
from spark_cas.programs.errors import UsageError
from spark_cas.spark.jvm import java_context, jvm_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:(?=/)")
_LOCAL = re.compile(r"file:(?://(?:localhost)?(?=/))?")
_GLOB = re.compile(r"[*?\[{\\]")
_BRACES = re.compile(r"\{([^{}]*)\}")
_ENCODED = re.compile(r"[^A-Za-z0-9_\-!.~'()*:@&=+$,;/]")
"""ASCII characters that Java's URI class percent-encodes in a path."""
_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""Folder value of Hive and Spark for a null partition value."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a load, sorted by path."""

    files: tuple[InputFile, ...]
    skipped: tuple[str, ...]
    """Paths in folders that were skipped because their names begin with ``_`` or ``.``."""


def list_input(paths: Sequence[str], spark: "SparkSession | None") -> Listing:
    """List the files of all ``--input`` paths.

    An existing path is used literally, any other as a glob pattern. Folders are listed recursively without hidden
    names. Without a session, all paths without a scheme are local.

    Raises UsageError if a path does not exist or needs a session, a file occurs twice, or Spark would skip a file.
    """
    result: list[InputFile] = []
    skipped: list[str] = []
    for each in paths:
        if _is_local(each, spark):
            result += _list_local(_LOCAL.sub("", each, count=1), skipped)
        elif spark is None:
            raise UsageError(f"--input {each}: only Spark lists this file system, and no session is running.")
        else:
            result += _list_with_spark(each, spark)
    result.sort(key=lambda file: file.path)
    _require_each_once(result)
    return Listing(tuple(result), tuple(sorted(skipped)))


def is_input(output: str, paths: Iterable[str]) -> bool:
    """Return whether the list of local ``--input`` paths includes a file or folder, or will when it exists."""
    target = os.path.realpath(output)
    while not os.path.exists(os.path.dirname(target)):
        target = os.path.dirname(target)
    local = (_LOCAL.sub("", each, count=1) for each in paths if _is_local(each, None))
    return any(_matches(each, target) or any(_lists(root, target) for root in _roots(each)) for each in local)


def literal(path: str) -> str:
    """Escape a path for Spark's readers, which otherwise use it as a glob pattern."""
    return re.sub(r"([*?\[\]{}\\])", r"\\\1", path)


def literal_paths(files: Iterable[InputFile]) -> list[str]:
    """Escape the paths of files for Spark's readers. Raises UsageError for a name that they skip."""
    for each in files:
        if is_hidden(each.path.rpartition("/")[2]):
            raise _hidden_by_spark(each.path)
    return [literal(each.path) for each in files]


def spark_uri(path: str) -> str:
    """Return the percent-encoded URI of a file, as in Spark's column ``_metadata.file_path``."""

    def encoded(result: re.Match[str]) -> str:
        character = result[0]  # Java does not encode other characters
        is_encoded = character.isascii() or character.isspace()
        return "".join(f"%{byte:02X}" for byte in character.encode()) if is_encoded else character

    return _ENCODED.sub(encoded, path)


def is_hidden(name: str) -> bool:
    """Return whether Spark's file sources skip a file or folder with this name."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


def _is_local(path: str, spark: "SparkSession | None") -> bool:
    if spark is not None and jvm_of(spark) is None:
        return False  # the server's local files are different ones
    if _SCHEME.match(path):
        return _LOCAL.match(path) is not None
    if spark is None:
        return True
    # Hadoop's configuration determines the scheme of paths without one. Python has no public access to it.
    configuration = java_context(spark.sparkContext).hadoopConfiguration()
    return str(configuration.get("fs.defaultFS", "file:///")).startswith("file:")


def _list_local(path: str, skipped: list[str]) -> Iterator[InputFile]:
    """Yield the files of a local path, and add the hidden names in folders to ``skipped``."""
    roots = _roots(path)
    if not roots:
        raise UsageError(f"--input {path}: no such file or folder, and no file matches it as a pattern.")
    for root in map(os.path.abspath, roots):
        if Path(root).is_dir():
            yield from _list_folder(root, skipped)
        elif not is_hidden(Path(root).name):
            yield _local_file(root)
        elif roots == [path]:
            raise _hidden_by_spark(root)
        else:
            skipped.append(root)


def _roots(path: str) -> list[str]:
    """Return the files and folders that a local path names, or matches as a pattern."""
    if os.path.lexists(path):
        return [path]
    return sorted({match for pattern in _without_braces(path) for match in glob.glob(pattern)})


def _matches(path: str, target: str) -> bool:
    """Return whether a real path, which need not exist, matches the pattern of an input."""
    parent, name = os.path.split(target)
    pairs = () if os.path.lexists(path) else map(os.path.split, _without_braces(path.rstrip("/")))
    return any(
        fnmatchcase(name, pattern)
        and not is_hidden(name)
        and parent in map(os.path.realpath, glob.glob(folder or os.curdir))
        for folder, pattern in pairs
    )


def _lists(root: str, target: str) -> bool:
    """Return whether a file or folder of the input is, or its list includes, a real path, which need not exist."""
    parent, name = os.path.split(target)
    known: set[str] = set()
    for folder, folders, names in os.walk(root, followlinks=True):
        real = os.path.realpath(folder)
        links = (file for each in names if os.path.islink(file := os.path.join(folder, each)))
        if real == target or (real == parent and not is_hidden(name)) or target in map(os.path.realpath, links):
            return True
        folders[:] = [each for each in folders if real not in known and not is_hidden(each)]
        known.add(real)
    return os.path.realpath(root) == target


def _list_folder(root: str, skipped: list[str]) -> Iterator[InputFile]:
    known: set[str] = set()
    for folder, folders, names in os.walk(root, followlinks=True, onerror=_cannot_list):
        real = os.path.realpath(folder)
        if real in known:
            raise UsageError(f"--input {root}: {folder} is a link to a folder that is listed already.")
        known.add(real)
        skipped += [os.path.join(folder, each, "") for each in folders if is_hidden(each)]
        skipped += [os.path.join(folder, each) for each in names if is_hidden(each)]
        folders[:] = sorted(each for each in folders if not is_hidden(each))
        partitions = _partitions(os.path.relpath(folder, root).split(os.sep))
        yield from (_local_file(os.path.join(folder, each), partitions) for each in names if not is_hidden(each))


def _local_file(path: str, partitions: tuple[tuple[str, str | None], ...] = ()) -> InputFile:
    try:
        result = os.stat(path)
    except OSError as error:
        cause = "a link to a file that does not exist" if os.path.islink(path) else error.strerror
        raise UsageError(f"--input: file {path} cannot be read: {cause}.") from error
    if not stat.S_ISREG(result.st_mode):
        raise UsageError(f"--input: {path} is neither a file nor a folder.")
    if ":" in os.path.basename(path):
        raise UsageError(f"--input: Spark cannot read local file {path}, because its name has a colon. Rename it.")
    return InputFile(f"file:{path}", result.st_size, result.st_mtime_ns // 1_000_000, partitions)


def _cannot_list(error: OSError) -> None:
    raise UsageError(f"--input: folder {error.filename} cannot be listed: {error.strerror}.") from error


def _without_braces(pattern: str) -> Iterator[str]:
    """Expand ``{a,b}``, which Hadoop's patterns support and Python's do not."""
    result = _BRACES.search(pattern)
    if result is None:
        yield pattern
        return
    for each in result[1].split(","):
        yield from _without_braces(pattern[: result.start()] + each + pattern[result.end() :])


def _list_with_spark(path: str, spark: "SparkSession") -> list[InputFile]:
    from pyspark.errors import AnalysisException

    listed, names = None, set()
    for candidate in (literal(path), path) if _GLOB.search(path) else (path,):
        reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        try:
            frame = reader.load(candidate)
            listed = frame.select("path", "length", "modificationTime").toArrow()
            names = {unquote(each) for each in frame.inputFiles()}
            break
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
    if listed is None:
        raise UsageError(f"--input {path}: no such file or folder, and no file matches it as a pattern.")
    name = path.rstrip("/").rpartition("/")[2]
    if not names and is_hidden(name):
        raise _hidden_by_spark(path)
    modified = listed.column("modificationTime").cast("timestamp[ms]", safe=False).cast("int64").to_pylist()
    sizes = listed.column("length").to_pylist()
    result = dict(zip(listed.column("path").to_pylist(), zip(sizes, modified, strict=True), strict=True))
    for name in names:
        # The source has no row for an empty file. Its listing has one slash in file:/a.
        result.setdefault(re.sub(r"^file:/+", "file:/", name), (0, 0))
    return [
        InputFile(each, size, time, _partitions(_folders_below(path, each)))
        for each, (size, time) in sorted(result.items())
    ]


def _folders_below(root: str, file: str) -> list[str]:
    """Return the folders between an input path, which may be a pattern, and a listed file."""
    patterns = _SCHEME.sub("", root, count=1).strip("/").split("/")
    folders = _SCHEME.sub("", file, count=1).strip("/").split("/")[:-1]
    for start in range(len(folders) - len(patterns) + 1):
        candidates = folders[start : start + len(patterns)]
        if all(name == each or fnmatchcase(name, each) for name, each in zip(candidates, patterns, strict=True)):
            return folders[start + len(patterns) :]
    return []


def _partitions(folders: Iterable[str]) -> tuple[tuple[str, str | None], ...]:
    """Return names and values of folders such as ``region=007``. The value keeps its text."""
    pairs = [each.partition("=") for each in folders]
    return tuple(
        (_text(name), None if value == _NULL_FOLDER else _text(value))
        for name, equals, value in pairs
        if equals and name
    )


def _text(escaped: str) -> str:
    """Return the text of an escaped name or value. Raises UsageError if its bytes are not UTF-8."""
    try:
        return unquote(escaped, errors="strict")
    except UnicodeDecodeError:
        raise UsageError(
            f"--input: folder name {escaped!r} has bytes that are not UTF-8, so its value is no text. Rename it."
        ) from None


def _require_each_once(files: Sequence[InputFile]) -> None:
    """Raise UsageError for a file that occurs twice, also under another link to a local file."""
    known: dict[object, str] = {}
    for each in files:
        identity: object = each.path
        with suppress(OSError):  # the file of a Connect server may be on another host
            if each.path.startswith("file:"):
                status = os.stat(each.path.removeprefix("file:"))
                identity = status.st_dev, status.st_ino
        if identity in known:
            how = "is named twice" if known[identity] == each.path else f"is the same file as {known[identity]}"
            raise UsageError(f"--input: file {each.path} {how}. Its rows would be appended twice. Name it once.")
        known[identity] = each.path


def _hidden_by_spark(path: str) -> UsageError:
    return UsageError(
        f"--input: Spark's file sources skip file {path}, because its name begins with _ or . or ends with "
        f"._COPYING_. Nothing was appended. Load a copy with another name."
    )
