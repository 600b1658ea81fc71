"""The jars of Kafka are downloaded once and completely. Instead of Java, a script acts like Ivy, or fails."""

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tools.kafka_broker import jars
from tools.kafka_broker.jars import HASHES, KAFKA_VERSION, hash_lines, java, kafka_jars
from tools.kafka_broker.waiting import BrokerFailedError

IVY = """#!/bin/sh
echo called >> "$SPARK_CAS_CACHE/calls"
for argument; do pattern=$argument; done
folder=$(dirname "$pattern")
mkdir -p "$folder"
echo half > "$folder/kafka.jar"
{then}
echo whole > "$folder/kafka.jar"
"""
RESOLVE = [sys.executable, "-c", "from tools.kafka_broker import jars; jars._verify = print; jars.kafka_jars()"]
WHOLE = f"{hashlib.sha256(b'whole' + bytes([10])).hexdigest()}  kafka.jar"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setenv("SPARK_CAS_CACHE", str(cache))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setattr(jars, "HASHES", tmp_path / "jars.sha256")
    jars.HASHES.write_text(WHOLE)
    return cache


@pytest.fixture
def ivy(tmp_path, cache):
    def write(then: str = "") -> None:
        script = tmp_path / "java" / "bin" / "java"
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(IVY.format(then=then))
        script.chmod(0o755)

    return write


def calls(cache: Path) -> int:
    return len((cache / "calls").read_text().splitlines())


def test_jars_are_resolved_once(cache, ivy):
    ivy()
    folder = kafka_jars()
    assert folder == kafka_jars() == cache / f"kafka-{KAFKA_VERSION}"
    assert (folder / "kafka.jar").read_text() == "whole\n"
    assert calls(cache) == 1
    assert {entry.name for entry in cache.iterdir()} == {folder.name, f"{folder.name}.lock", "calls"}


@pytest.mark.parametrize("pinned", [f"{'0' * 64}  kafka.jar", WHOLE.replace("kafka", "other")])
def test_a_jar_with_another_hash_or_none_is_named_and_not_kept(cache, ivy, pinned):
    ivy()
    jars.HASHES.write_text(pinned)
    with pytest.raises(BrokerFailedError, match=r"kafka\.jar has the SHA-256"):
        kafka_jars()
    assert not (cache / f"kafka-{KAFKA_VERSION}").exists()
    jars.HASHES.write_text(WHOLE)
    kafka_jars()


def test_the_jars_of_this_kafka_have_the_pinned_hashes():
    assert {*hash_lines(kafka_jars())} <= {*HASHES.read_text().splitlines()}


def test_a_failed_download_is_an_error_and_is_tried_again(cache, ivy):
    ivy("echo '::: not found'; exit 1")
    with pytest.raises(BrokerFailedError, match="::: not found"):
        kafka_jars()
    ivy()
    assert (kafka_jars() / "kafka.jar").read_text() == "whole\n"


def test_a_killed_download_leaves_no_half_cache(cache, ivy):
    ivy('kill -9 "$PPID"')
    killed = subprocess.run(RESOLVE, check=False, capture_output=True, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert not (cache / f"kafka-{KAFKA_VERSION}").exists()
    ivy()
    assert (kafka_jars() / "kafka.jar").read_text() == "whole\n"


def test_processes_that_want_the_jars_at_once_download_them_once(cache, ivy):
    ivy("sleep 1")
    both = [subprocess.Popen(RESOLVE, stderr=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    assert calls(cache) == 1


def test_missing_java_is_reported(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", os.devnull)
    with pytest.raises(BrokerFailedError, match="Java 17"):
        java()
