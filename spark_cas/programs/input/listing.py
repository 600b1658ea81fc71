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
from spark_cas.spark.jvm import java_context, java_session, jvm_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:(?=/)")
_LOCAL = re.compile(r"file:(?://(?:localhost)?(?=/))?")
_GLOB = re.compile(r"[*?\[{\\]")
_BRACES = re.compile(r"(?<!\\)\{([^{}]*)\}")
_ESCAPED = re.compile(r"\\(.)|\[\^")
_PLACE = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:(?=/))?(?://[^/]*)?")
"""Scheme and authority of a path."""
_ENCODED = re.compile(r"[^A-Za-z0-9_\-!.~'()*:@&=+$,;/]")
"""ASCII characters that Java's URI class percent-encodes in a path."""
_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""Folder value of Hive and Spark for a null partition value."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a load, sorted by path."""

    files: tuple[InputFile, ...]
    skipped: tuple[str, ...]
    """Paths in folders, or of a pattern, that were skipped because of a name that begins with ``_`` or ``.``."""


def list_input(paths: Sequence[str], spark: "SparkSession | None") -> Listing:
    """List the files of all ``--input`` paths.

    An existing path is used literally, any other as a glob pattern of Hadoop. Folders are listed recursively without
    hidden names. A pattern matches a hidden name only if it has the ``_`` or ``.`` itself. Without a session, all
    paths without a scheme are local.

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
            result += _list_with_spark(each, spark, skipped)
    result.sort(key=lambda file: file.path)
    _require_each_once(result)
    return Listing(tuple(result), tuple(sorted(skipped)))


def is_input(output: str, paths: Iterable[str]) -> bool:
    """Return whether the list of local ``--input`` paths includes a file or folder, or will when it exists."""
    target = os.path.realpath(output)
    while not os.path.exists(os.path.dirname(target)):
        target = os.path.dirname(target)
    local = [_LOCAL.sub("", each, count=1) for each in paths if _is_local(each, None)]
    roots = [root for each in local for root, is_named in _roots(each).items() if is_named]
    return any(_matches(each, target) for each in local) or any(_lists(each, target) for each in roots)


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
    for match, is_named in sorted(roots.items()):
        root = os.path.abspath(match)
        if not is_named:
            skipped.append(os.path.join(root, "") if Path(root).is_dir() else root)
            continue
        if Path(root).is_dir():
            yield from _list_folder(root, skipped)
        elif not is_hidden(Path(root).name):
            yield _local_file(root)
        elif path in roots:
            raise _hidden_by_spark(root)
        else:
            skipped.append(root)


def _roots(path: str) -> dict[str, bool]:
    """Return the files and folders that a local path names, or matches as a pattern.

    The value is False for those in a hidden folder that the pattern does not name.
    """
    if os.path.lexists(path):
        return {path: True}
    roots: dict[str, bool] = {}
    for pattern in _python_patterns(path):
        for match in glob.glob(pattern):
            roots[match] = roots.get(match, False) or _names_hidden(_parts(pattern), _parts(match))
    return roots


def _matches(path: str, target: str) -> bool:
    """Return whether a real path, which need not exist, matches the pattern of an input."""
    parent, name = os.path.split(target)
    pairs = () if os.path.lexists(path) else map(os.path.split, _python_patterns(path.rstrip("/")))
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


def _python_patterns(pattern: str) -> Iterator[str]:
    """Return a pattern of Hadoop as patterns of Python, which have neither ``{a,b}``, ``[^a]`` nor a backslash."""
    result = _BRACES.search(pattern)
    if result is None:
        yield _ESCAPED.sub(lambda each: glob.escape(each[1]) if each[1] else "[!", pattern)
        return
    for each in result[1].split(","):
        yield from _python_patterns(pattern[: result.start()] + each + pattern[result.end() :])


def _parts(path: str) -> list[str]:
    return [each for each in path.split("/") if each not in ("", ".")]


def _names_hidden(patterns: Sequence[str], names: Sequence[str]) -> bool:
    """Return whether a pattern has the ``_`` or ``.`` of each hidden name that it matches."""
    return all(each[0] in "_." or not is_hidden(name) for each, name in zip(patterns, names, strict=True))


def _list_with_spark(path: str, spark: "SparkSession", skipped: list[str]) -> Iterator[InputFile]:
    """Yield the files of a path that Spark lists, and add those in hidden folders of a pattern to ``skipped``."""
    from pyspark.errors import AnalysisException

    listed, names, candidate = None, set(), path
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
    absolute = _absolute(path, spark)
    patterns = [*_python_patterns(absolute)] if candidate == path else [glob.escape(absolute)]
    for file, (size, time) in sorted(result.items()):
        partitions = {each for pattern in patterns for each in _partitions_below(pattern, file)}
        if len(partitions - {None}) > 1 or not partitions:
            raise UsageError(
                f"--input {path}: it is not clear which folders of file {file} are below the pattern. Nothing was "
                f"appended. Give the absolute path of one folder."
            )
        if partitions == {None}:
            skipped.append(file)
        yield from (InputFile(file, size, time, each) for each in partitions if each is not None)


def _absolute(path: str, spark: "SparkSession") -> str:
    """Return the path as Spark resolves it: with the working directory, and without ``//`` and ``/./``."""
    jvm = jvm_of(spark)
    if jvm is None:
        return path  # the working directory of a Connect server is unknown
    place = jvm.org.apache.hadoop.fs.Path(path)
    files = place.getFileSystem(java_session(spark).sessionState().newHadoopConf())
    return str(place.makeQualified(files.getUri(), files.getWorkingDirectory()).toString())


def _partitions_below(pattern: str, file: str) -> "Iterator[tuple[tuple[str, str | None], ...] | None]":
    """Yield the partitions of a file below a folder that a pattern matches; None if the folder is hidden."""
    place = _PLACE.sub("", pattern, count=1)
    patterns, names = _parts(place), _parts(_PLACE.sub("", file, count=1))
    is_relative = place != "" and not place.startswith("/")
    for start in range(len(names) - len(patterns) + 1 if is_relative else 1):
        end = start + len(patterns)
        matched = names[start:end]
        if len(matched) == len(patterns) and all(map(fnmatchcase, matched, patterns)):
            yield _partitions(names[end:-1]) if _names_hidden(patterns, matched) else None


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
