"""JSON documents: exact or rejected, with their original bytes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cas.programs.input.json_documents import documents_of, parse_line, parse_path, text_at

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(SCALARS, lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(), each, max_size=3))
SPACES = st.sampled_from([(", ", ": "), (",", ":"), (" ,\n", "\t: ")])


@given(st.dictionaries(st.text(min_size=1), VALUES, max_size=4), SPACES, st.booleans())
def test_document_is_that_of_another_parser(document, separators, ascii_only):
    text = json.dumps(document, separators=separators, ensure_ascii=ascii_only)
    value = parse_line(text)
    assert [begin for begin, _, _ in documents_of(f"[{text}, {text}]")] == [1, len(text) + 3]
    for name, member in document.items():
        found = text_at(text, value, [name])
        if isinstance(member, str | None):
            assert found == member
        else:
            assert found is not None
            assert found in text
            assert json.loads(found) == member


@pytest.mark.parametrize(
    "line",
    [
        '{"a":1}{"b":2}',
        '{"a":1} x',
        '{"a":NaN}',
        '{"a":Infinity}',
        '{"a":1,"a":2}',
        '{"a":{"b":1,"b":1}}',
        "{'a':1}",
        '{"a":01}',
        '{"a":1,}',
        '{"a":"x\ty"}',
        '{"a":"\\ud800"}',
        '{"a":.5}',
        '{"a"',
        "",
        "[" * 100_000,
    ],
)
def test_line_that_is_no_exact_document_is_rejected(line):
    with pytest.raises(ValueError):
        parse_line(line)


def test_surrogate_pair_is_a_character():
    assert parse_line('{"a":"\\ud83d\\ude00"}') == {"a": "😀"}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("$.a", "1.10"),
        ("$.b", "1e400"),
        ("$.c.d", "é"),
        ("$.c", '{ "d" : "\\u00e9" }'),
        ("$.e[1]", "12345678901234567890.5"),
        ("$.e", "[true, 12345678901234567890.5,null ]"),
        ("$.e[0]", "true"),
        ("$.e[2]", None),
        ("$.e[3]", None),
        ("$['f g'].h[0]['i']", "{}"),
        ("$.x", None),
        ("$.a.b", None),
        ("$.c[0]", None),
    ],
)
def test_text_of_a_path_is_exact(path, text):
    document = (
        '{"a":1.10,"b":1e400,"c" : { "d" : "\\u00e9" }, "e":[true, 12345678901234567890.5,null ],'
        '"f g":{"h":[{"i":{}}]}}'
    )
    assert text_at(document, parse_line(document), parse_path(path)) == text


@pytest.mark.parametrize("path", ["", "a", "a.b", "$a", "$.", "$.a b", "$[x]", "$.a[", "$..a", "$.a[-1]"])
def test_other_path_is_rejected(path):
    with pytest.raises(ValueError):
        parse_path(path)


@pytest.mark.parametrize("text", ["{} {}", "[{}] x", "[{}", "[{},]", "[1 2]", "x"])
def test_other_whole_file_is_rejected(text):
    with pytest.raises(ValueError):
        documents_of(text)


def test_array_may_be_empty():
    assert documents_of(" [ ]\n") == []
