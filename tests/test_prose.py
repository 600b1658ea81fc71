"""The check of the project's English, on small texts."""

import pytest

from tools import prose

FILLER = "The broker appends the record. " * 50
MARKED = "The broker says what it wants. " * 2
LONG = "word " * 36 + "."


def results(path, text):
    return [*prose.findings(path, text)]


def test_many_marker_words_are_reported():
    [line] = results("a.md", FILLER + MARKED)
    assert line == "a.md: 15.3 marker words per 1,000, and 4 are allowed"


def test_short_file_may_have_marker_words():
    assert results("a.md", MARKED) == []


@pytest.mark.parametrize("code", [f"`{MARKED}`", f"\n\n```sh\n{MARKED}\n```\n", f"\n\n    {MARKED}\n\n"])
def test_marker_word_in_code_of_markdown_is_not_counted(code):
    assert results("a.md", FILLER + code) == []


@pytest.mark.parametrize(
    "text", ['"""{}"""\n', "# {}\nx = 1\n", 'x = "{}"\n', 'def f():\n    """{}"""\n', 'x = f"{{y}} {}"\n']
)
def test_docstrings_comments_and_strings_of_python_are_counted(text):
    assert len(results("a.py", text.format(FILLER + MARKED))) == 1


def test_marker_word_in_names_of_python_is_not_counted():
    assert results("a.py", f'"""{FILLER}"""\n' + 'what = says(who, "goes")\n' * 20) == []


def test_long_sentence_is_reported_with_its_line():
    [line] = results("a.md", f"# Title\n\nA sentence.\n\n- {LONG}\n")
    assert line.startswith("a.md:5: sentence of 36 words: word")
    [line] = results("a.py", f'x = 1\n"""A sentence.\n\n{LONG}\n"""\n')
    assert line.startswith("a.py:4: ")


def test_items_and_cells_are_sentences_of_their_own():
    part = "word " * 30
    assert results("a.md", f"- {part}\n- {part}\n\n| {part} | {part} |\n| {part} | {part} |\n") == []
    assert results("a.py", f'"""Args:\n    one: {part}\n    two: {part}\n"""\n') == []


def test_program_in_a_string_is_no_sentence():
    assert results("a.py", "x = '''import sys\n" + "print(sys.argv[1], end='')\n" * 30 + "'''\n") == []


def test_names_with_marker_words_are_reported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spark_cas").mkdir()
    (tmp_path / "spark_cas" / "told.py").write_text(
        "class WhatFails:\n    def run(self, mine):\n        other = mine\n"
    )
    assert prose.check(["spark_cas/told.py"]) == [
        "spark_cas/told.py:1: name with a marker word: told",
        "spark_cas/told.py:1: name with a marker word: WhatFails",
        "spark_cas/told.py:2: name with a marker word: mine",
    ]


def test_excepted_files_and_names_pass(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spark_cas").mkdir()
    (tmp_path / "spark_cas" / "a.py").write_text("def told(): ...\n")
    (tmp_path / "b.md").write_text(LONG)
    assert len(prose.check(["spark_cas/a.py", "b.md"])) == 2
    monkeypatch.setattr(prose, "EXCEPT", {"told": "a reason", "b.md": "a reason"})
    assert prose.check(["spark_cas/a.py", "b.md"]) == []
