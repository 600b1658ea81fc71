import pytest

from spark_cas.core.records import readable


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "<null>"),
        (b"", ""),
        ("Zürich 𝄞".encode(), "Zürich 𝄞"),
        (b"a\xff\x80b", "a\\xff\\x80b"),
        (b"two\nlines\ttab\x1b[31m", "two\\nlines\\ttab\\x1b[31m"),
        ("\u202eright to left\u2028".encode(), "\\u202eright to left\\u2028"),
    ],
)
def test_bytes_are_shown_in_one_line(value, shown):
    assert readable(value) == shown
