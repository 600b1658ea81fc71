"""The list of a load's files, by local functions and by Spark: the same rules, and no file is omitted silently."""

import os

import pytest

from spark_cas.programs.errors import UsageError
from spark_cas.programs.input.listing import Listing, list_input


@pytest.fixture
def folder(tmp_path):
    for name in ("a.csv", "sub/b.csv", "sub/deep/c.csv", "_d.csv", ".e.csv", "_hidden/f.csv", "e[1].csv", "e1.csv"):
        file = tmp_path / "in" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"id\n{name}\n")
    return tmp_path / "in"


def names(listing, folder):
    return [each.path.removeprefix(f"file:{folder}/") for each in listing.files]


def test_folder_is_listed_recursively_and_hidden_names_are_reported(folder):
    found = list_input([str(folder)], None)
    assert names(found, folder) == ["a.csv", "e1.csv", "e[1].csv", "sub/b.csv", "sub/deep/c.csv"]
    assert found.skipped == tuple(f"{folder}/{each}" for each in (".e.csv", "_d.csv", "_hidden/"))
    file = found.files[0]
    state = (folder / "a.csv").stat()
    assert (file.size, file.modified_ms) == (state.st_size, state.st_mtime_ns // 1_000_000)


def test_existing_name_is_taken_literally_and_any_other_as_a_pattern(folder):
    assert names(list_input([f"{folder}/e[1].csv"], None), folder) == ["e[1].csv"]
    assert names(list_input([f"{folder}/e[12].csv"], None), folder) == ["e1.csv"]
    assert names(list_input([f"{folder}/{{a,e1}}.csv"], None), folder) == ["a.csv", "e1.csv"]
    assert names(list_input([f"file://{folder}/a.csv"], None), folder) == ["a.csv"]


def test_file_that_spark_would_skip_is_rejected_if_it_is_named(folder):
    with pytest.raises(UsageError):
        list_input([f"{folder}/_d.csv"], None)
    found = list_input([f"{folder}/*.csv"], None)
    assert names(found, folder) == ["a.csv", "e1.csv", "e[1].csv"]
    assert found.skipped == (f"{folder}/_d.csv",)


def test_same_file_twice_is_rejected(folder):
    with pytest.raises(UsageError, match="twice"):
        list_input([f"{folder}/a.csv", str(folder)], None)
    (folder / "link.csv").symlink_to(folder / "a.csv")
    with pytest.raises(UsageError, match=r"link\.csv"):
        list_input([str(folder)], None)
    (folder / "link.csv").unlink()
    (folder / "hard.csv").hardlink_to(folder / "a.csv")
    with pytest.raises(UsageError, match=r"hard\.csv"):
        list_input([str(folder)], None)


def test_folder_value_that_is_no_text_is_rejected(folder):
    (folder / "x=%FE").mkdir()
    (folder / "x=%FE" / "a.csv").write_text("id\n1\n")
    with pytest.raises(UsageError, match="%FE"):
        list_input([str(folder)], None)


def test_local_name_with_a_colon_is_rejected(folder):
    (folder / "col:on.csv").touch()
    with pytest.raises(UsageError, match="col:on"):
        list_input([str(folder)], None)


def test_link_that_leads_nowhere_is_rejected_by_name(folder):
    (folder / "gone.csv").symlink_to(folder / "nothing")
    with pytest.raises(UsageError, match=r"gone\.csv"):
        list_input([str(folder)], None)


def test_link_to_a_parent_folder_ends_in_an_error(folder):
    (folder / "sub" / "up").symlink_to(folder)
    with pytest.raises(UsageError, match="up"):
        list_input([str(folder)], None)


@pytest.mark.parametrize("path", ["nothing.csv", "nothing*.csv", "s3a://bucket/a.csv"])
def test_path_without_a_file_is_rejected(folder, path):
    with pytest.raises(UsageError):
        list_input([path if "://" in path else f"{folder}/{path}"], None)


def test_folders_of_partitions_keep_their_text(tmp_path):
    file = tmp_path / "in" / "region=007" / "note=a%2Fb" / "none=__HIVE_DEFAULT_PARTITION__" / "p.parquet"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"x")
    (found,) = list_input([str(tmp_path / "in")], None).files
    assert found.partitions == (("region", "007"), ("note", "a/b"), ("none", None))
    (found,) = list_input([str(tmp_path / "in" / "region=007")], None).files
    assert found.partitions == (("note", "a/b"), ("none", None))


SUB = ["sub/b.csv", "sub/day=1/h.csv", "sub/deep/c.csv"]
PATTERNS = {
    "/sub/": SUB,
    "./sub": SUB,
    "s*//": SUB,
    "{sub,region=*}": ["region=007/g.csv", *SUB],
    "[^a-e]*": ["region=007/g.csv", *SUB],
    "[!a-r]*": SUB,
    "*/[^b]*": ["region=007/g.csv", *SUB[1:]],
    r"e\[1\].csv": ["e[1].csv"],
    "_*": ["_hidden/f.csv"],
    "{_hidden,sub}": ["_hidden/f.csv", *SUB],
    "*/_tmp": ["deep/_tmp/h.csv"],
}


@pytest.mark.spark
def test_spark_lists_the_same_files(spark, folder, tmp_path, monkeypatch):
    """A file system that only Spark can list, such as a bucket, follows the same rules."""
    (folder / "region=007").mkdir()
    (folder / "region=007" / "g.csv").write_text("id\n1\n")
    (folder / "a b%20c.csv").write_text("id\n1\n")
    (folder / "empty.csv").touch()
    os.utime(folder / "empty.csv", ns=(0, 0))
    by_python = list_input([str(folder)], spark)
    monkeypatch.setattr("spark_cas.programs.input.listing._is_local", lambda _, session: session is None)
    assert list_input([f"file:{folder}"], spark) == Listing(by_python.files, ())
    assert names(list_input([f"file://{folder}/e[1].csv"], spark), folder) == ["e[1].csv"]
    assert names(list_input([f"file://{folder}/{{a,e1}}.csv"], spark), folder) == ["a.csv", "e1.csv"]
    for path in ("_d.csv", "nothing.csv", "nothing*.csv"):
        with pytest.raises(UsageError):
            list_input([f"file:{folder}/{path}"], spark)
    for name in ("sub/day=1/h.csv", "deep/_tmp/h.csv"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("id\n1\n")
    for pattern, expected in PATTERNS.items():
        by_python, by_spark = (list_input([f"file:{folder}/{pattern}"], each) for each in (None, spark))
        assert by_spark.files == by_python.files, pattern
        assert names(by_python, folder) == expected, pattern
    for unclear in ("/elsewhere", "*"):
        monkeypatch.setattr("spark_cas.programs.input.listing._absolute", lambda *_, unclear=unclear: unclear)
        with pytest.raises(UsageError, match="not clear which folders"):
            list_input([f"file:{folder}"], spark)
