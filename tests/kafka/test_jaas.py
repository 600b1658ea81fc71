"""Parsing of JAAS logins. Runs without a broker."""

import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cas.core.errors import OptionError
from spark_cas.log.kafka.settings.jaas import MODULES, parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def double(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def single(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\012").replace("\r", "\\015")
    return f"'{escaped}'"


def backslashed(value: str) -> str:
    """Escape every character, except those that would become other characters."""
    return '"' + "".join(c if c in "01234567abfnrtv" else f"\\{c}" for c in value) + '"'


def octal(value: str) -> str:
    return '"' + "".join(f"\\{ord(c):03o}" if ord(c) < 256 else c for c in value) + '"'


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.$-]*", fullmatch=True)
OPTIONS = st.dictionaries(NAMES, st.tuples(st.sampled_from([double, single, backslashed, octal]), st.text()))
BLANKS = st.sampled_from([" ", "\n", "\t  ", " // a comment; \"'\n", ' /* one; " \n */ ', "\r\n"])


@given(st.sampled_from(sorted(MODULES)), OPTIONS, BLANKS, BLANKS)
def test_quoted_text_survives_a_round_trip(module, options, outer, inner):
    parts = [f"{name}{inner}={inner}{quote(value)}" for name, (quote, value) in options.items()]
    login = parse_jaas(outer.join(["", module, "Required", *parts, ";", ""]))
    assert login.module == MODULES[module]
    assert login.options == {name: value for name, (_, value) in options.items()}


@given(st.text(alphabet=st.sampled_from("ab\"'\\=;/* \n1$.")), st.booleans())
def test_any_text_is_parsed_or_rejected_without_showing_it(text, begins_well):
    secret = text.replace("a", "canary")
    shown = ""
    try:
        parse_jaas(f"{PLAIN} required {secret}" if begins_well else secret)
    except OptionError as error:
        shown = "".join(traceback.format_exception(error))
    assert "canary" not in shown


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f"{PLAIN} required;", {}),
        (f'{PLAIN} required username="u" password="p";', {"username": "u", "password": "p"}),
        (
            f"{PLAIN} REQUIRED\n  password='it\\'s' \n  username=a-b_c.d$1 ;\n",
            {"password": "it's", "username": "a-b_c.d$1"},
        ),
        (f'{PLAIN} required a="x=\\"y\\";z";', {"a": 'x="y";z'}),
        (f'{PLAIN} required a="//no" b="/*no*/"; // yes', {"a": "//no", "b": "/*no*/"}),
        (f'{PLAIN} required a="\\101\\60\\7\\4000\\n\\q";', {"a": "A0\a 00\nq"}),
        (f"kafkashaded.{PLAIN} required a='';", {"a": ""}),
        (f'{PLAIN} required password="env:NAME";', {"password": "env:NAME"}),
    ],
)
def test_these_read_as_kafka_reads_them(text, options):
    assert parse_jaas(text).options == options


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "semicolon"),
        (";", "does not begin"),
        ("env:canary", "double quotes"),
        ("canary;", "does not begin"),
        (f"{PLAIN};", "does not begin"),
        (f"{PLAIN} optional canary=canary;", "does not begin"),
        ("com.canary.Module required;", "not supported"),
        ("com.sun.security.auth.module.Krb5LoginModule required canary=true;", "libsasl2"),
        (f"{PLAIN} required canary;", "name="),
        (f"{PLAIN} required password=;", "name="),
        (f"{PLAIN} required password canary;", "name="),
        (f"{PLAIN} required password=canary = canary;", "name="),
        (f"{PLAIN} required = canary;", "name="),
        (f'{PLAIN} required password="canary;', "not closed"),
        (f'{PLAIN} required password="canary\n";', "not closed"),
        (f"{PLAIN} required password=pass/canary;", "double quotes"),
        (f"{PLAIN} required password=pass//canary;", "semicolon"),
        (f'{PLAIN} required password="canary"', "semicolon"),
        (f'{PLAIN} required password="canary" ";"', "semicolon"),
        (f"{PLAIN} required a=canary a=canary;", "twice"),
        (f"{PLAIN} required a=canary; {PLAIN} required;", "more than one"),
    ],
)
def test_these_are_refused(text, says):
    with pytest.raises(OptionError, match=r"kafka\.sasl\.jaas\.config") as refused:
        parse_jaas(text)
    assert says in str(refused.value)
    assert "canary" not in str(refused.value)


def test_a_login_is_not_shown():
    assert "canary" not in repr(parse_jaas(f"{PLAIN} required password=canary;"))
