"""The examples of docs/authentication.md: options that a write accepts, and functions that compile."""

import pytest

from spark_cas.log.kafka.settings import kerberos
from spark_cas.options.parse import parse_read, parse_write
from tests.pages import blocks

BLOCKS = list(blocks("docs/authentication.md"))
OPTIONS = [each.text for each in BLOCKS if each.language == "properties"]
TOPIC = {"kafka.bootstrap.servers": "b-1.demo.c2.kafka.eu-west-1.amazonaws.com:9098", "topic": "flights"}


@pytest.mark.parametrize("text", OPTIONS)
def test_options_are_accepted(text, monkeypatch):
    monkeypatch.setattr(kerberos, "client_has_kerberos", lambda: True)
    options = dict(line.split(" = ", 1) for line in text.splitlines())
    assert parse_write({**TOPIC, **options}).spec == parse_read({**TOPIC, **options}).selection.spec


def test_functions_compile():
    functions = [each.text for each in BLOCKS if each.language == "python"]
    assert functions
    for text in functions:
        compile(text, "docs/authentication.md", "exec")
