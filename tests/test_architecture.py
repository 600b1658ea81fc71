"""The rules of the source tree that no type and no linter checks. Each check is also tested with a violation."""

import ast
import io
import os
import re
import shutil
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

from spark_cas.core.chunks import ChunkLimits
from spark_cas.log.kafka.kafka_log import KafkaLog
from spark_cas.log.objects import ObjectLog
from spark_cas.log.protocol import Admin, Blind, Expandable, LockTable, Log, Registry
from spark_cas.options.table import OPTIONS
from tests.support.memory_log import MemoryLog

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "spark_cas"
EXAMPLE = ROOT / "examples/key_value_store"
CORE_MAY_USE = {"numpy", "pyarrow", "xxhash"}
DATA_METHODS = 6
METHODS_TO_WRITE = 20


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("lint-imports")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), str(folder / "examples")])}
    return subprocess.run(
        [program, "--no-cache"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_every_layer_contract_holds():
    linted = lint_imports(ROOT)
    assert linted.returncode == 0, linted.stdout + linted.stderr


def test_every_layer_contract_can_be_broken(tmp_path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for package in (PACKAGE, EXAMPLE):
        shutil.copytree(package, tmp_path / package.relative_to(ROOT))
    for module, line in [
        (PACKAGE / "core/offsets.py", "import spark_cas.log.protocol"),
        (PACKAGE / "core/outcome.py", "import time"),
        (PACKAGE / "log/clock.py", "from pickle import loads"),
        (PACKAGE / "log/load/planning.py", "import pyspark"),
        (PACKAGE / "log/objects/paths.py", "import spark_cas.log.kafka.client.client_errors"),
        (PACKAGE / "log/protocol.py", "import confluent_kafka, obstore"),
        (PACKAGE / "programs/load_progress.py", "import spark_cas.log.kafka.settings.kafka_spec"),
        (PACKAGE / "spark/accelerators/jvm_hash.py", "import spark_cas.spark.writing.route"),
        (PACKAGE / "cli/tables.py", "import key_value_store"),
        (EXAMPLE / "node.py", "import key_value_store.http.wire, spark_cas.programs.errors"),
        (EXAMPLE / "shard.py", "import spark_cas.spark.schema"),
        (EXAMPLE / "http/client.py", "import starlette"),
    ]:
        with (tmp_path / module.relative_to(ROOT)).open("a") as source:
            source.write(f"\n{line}\n")
    linted = re.sub(r"\x1b\[\d*m", "", lint_imports(tmp_path).stdout)  # the output may be coloured
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    kept = [c["name"] for c in contracts if f"{c['name']} BROKEN" not in linted]
    assert not kept, linted


def third_parties(imported: set[str]) -> set[str]:
    return {name for name in imported if name.split(".")[0] not in sys.stdlib_module_names | {"spark_cas"}}


def test_the_core_uses_no_other_package_than_these():
    graph = grimp.build_graph("spark_cas", include_external_packages=True, cache_dir=None)
    core = {"spark_cas.core"} | graph.find_descendants("spark_cas.core")
    imported = {name for module in core for name in graph.find_modules_directly_imported_by(module)}
    assert third_parties(imported) == CORE_MAY_USE
    assert third_parties({"polars.io", "os.path", "spark_cas.log"}) == {"polars.io"}


def loads_spark(module: str) -> bool:
    program = f"import sys, {module}; sys.exit('pyspark' in sys.modules)"
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 1


def test_the_package_and_its_logs_are_imported_without_spark():
    assert not loads_spark("spark_cas.log.open")
    assert loads_spark("pyspark.sql")


def public_methods(interface: type) -> set[str]:
    return {name for base in interface.__mro__ for name in vars(base) if not name.startswith("_")}


def test_a_backend_has_six_data_methods_and_twenty_to_write_in_all():
    assert 0 < len(public_methods(Log)) <= DATA_METHODS
    to_write = set().union(*map(public_methods, (Log, Blind, Admin, Expandable, Registry, LockTable)))
    assert DATA_METHODS < len(to_write) <= METHODS_TO_WRITE
    assert public_methods(type("Wide", (Log,), {"trim": None})) == public_methods(Log) | {"trim"}


def test_defaults_of_the_backend_exist():
    """A protocol's own body returns None, so a missing method would appear late, as a missing result."""
    for backend in (MemoryLog, ObjectLog, KafkaLog):
        for name in public_methods(backend):
            owner = next(base for base in backend.__mro__ if name in vars(base))
            assert owner not in {Log, Blind, Admin, Expandable, Registry, LockTable}, f"{backend.__name__}.{name}"


def option_names(source: str) -> list[str]:
    """Return the options of Spark in a text, except in backquotes, if their names are not plain words."""
    names = [option.name for option in OPTIONS if not option.name.islower()]
    return [name for name in names if re.search(rf"(?<!`){re.escape(name)}(?!`)", source)]


def test_no_core_error_names_an_option_of_spark():
    assert [path for path in (PACKAGE / "core").rglob("*.py") if option_names(path.read_text())] == []
    assert option_names('"write with expectedOffsets"') == ["expectedOffsets"]


def inclusive_offsets(source: str) -> list[str]:
    return re.findall(r"\blast_?offset\w*", source, re.IGNORECASE)


def test_offsets_are_half_open_by_name():
    assert [path for path in PACKAGE.rglob("*.py") if inclusive_offsets(path.read_text())] == []
    assert inclusive_offsets("self.last_offset = lastOffset") == ["last_offset", "lastOffset"]


def has_status(decision: str) -> bool:
    return re.search(r"^[^\w\n]*Status[^\w\n]*:[^\w\n]*\w", decision, re.MULTILINE) is not None


def imported_with(modules: list[str]) -> set[str]:
    """Return the modules of a process that has imported these."""
    program = f"import sys, importlib\nfor each in {modules}: importlib.import_module(each)\nprint(*sys.modules)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(EXAMPLE.parent)])}
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return set(ran.stdout.split())


def test_no_import_takes_that_of_pandas():
    """It takes 0.7 s in each process that Spark starts. pyarrow imports pandas for the first list or scalar."""
    named = [(file, folder.parent) for folder in (PACKAGE, EXAMPLE) for file in folder.rglob("*.py")]
    files = [file.relative_to(path).with_suffix("") for file, path in named if file.stem != "__main__"]
    modules = [".".join(file.parts).removesuffix(".__init__") for file in files]
    assert len(modules) > 100
    imported = imported_with(modules)
    assert {"pyarrow", *modules} <= imported
    assert "pandas" not in imported
    assert "pandas" in imported_with(["pyarrow", "pandas"])


PARTS_OF_ACCELERATORS = {"__init__", "input_stream", "librdkafka", "record_arrays"}
STATED = re.compile(r"^Saves: .*?\bRows?\s(.*?)^Public path: .*?^Tested: ", re.MULTILINE | re.DOTALL)


def rows_of_accelerator(docstring: str) -> set[str]:
    """Return the parts of the benchmark that justify an accelerator. Empty without a public path and versions."""
    stated = STATED.search(docstring)
    return set() if stated is None else {*re.findall(r"`([\w-]+)`", stated[1])}


def test_each_accelerator_states_its_rows_its_public_path_and_its_versions():
    modules = [path for path in PACKAGE.rglob("accelerators/*.py") if path.stem not in PARTS_OF_ACCELERATORS]
    performance = (ROOT / "docs/performance.md").read_text()
    assert len(modules) >= 5
    for module in modules:
        rows = rows_of_accelerator(ast.get_docstring(ast.parse(module.read_text())) or "")
        assert rows, module
        assert {row for row in rows if f"`{row}`" not in performance} == set(), module
        assert f"`{module.stem}`" in (module.parent / "__init__.py").read_text()
    assert rows_of_accelerator("Saves: time. Row `read`.\nPublic path: none.\nTested: 1.") == {"read"}
    assert rows_of_accelerator("Saves: time. Row `read`.\nTested: 1.") == set()


def test_no_admin_client_requests_a_group():
    """Its librdkafka crashes the process while a coordinator moves: docs/decisions/0002."""
    calls = [str(file) for file in PACKAGE.rglob("*.py") if "list_consumer_group_offsets" in file.read_text()]
    assert calls == []


MAY_KNOW_PYSPARK = {
    "spark/versions.py": "the differences between the versions",
    "spark/jvm.py": "the JVM of a classic session",
    "spark/accelerators/": "code that saves time through an interface that its owner may change",
    "spark/supported.py": "the supported versions",
    "options/": "the reference of the options",
    "cli/commands.py": "the arguments of a parser of argparse",
    "log/": "the clients of logs: the linter forbids pyspark there",
}
PRIVATE = re.compile(r"_j[a-z]+|_sc|_gateway|_ensure_initialized|_active\w+|_instantiated\w+|_plan|_client|_session")
INTERNAL = re.compile(r"pyspark\.(daemon|java_gateway|serializers|shuffle|worker\w*|sql\.worker)(\..+)?")
VERSION = re.compile(r"4\.[0-9](\.\d+)?|.*\b(py)?spark( version)?[ <>=]*\d\.\d.*", re.IGNORECASE | re.DOTALL)


def own_names(tree: ast.Module) -> set[str]:
    """Return the functions, classes, variables and attributes that a module defines."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                found.add(name)
    return found


def detected_features(tree: ast.Module) -> Iterator[str]:
    """Yield the names by which code detects a version of pyspark."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name("hasattr"), args=[owner, name]):
                if not (isinstance(owner, ast.Name) and owner.id in sys.stdlib_module_names):
                    yield ast.unparse(name)
            case ast.Attribute(attr=name) | ast.alias(name=name) if name.startswith("HAS_"):
                yield name
            case ast.Try(body=body) if re.search("ImportError|ModuleNotFoundError", ast.unparse(node)):
                imported = [each.module or "" for each in body if isinstance(each, ast.ImportFrom)]
                yield from (name for name in imported if name.split(".")[0] == "pyspark")


def ties_to_pyspark(source: str) -> list[str]:
    """Return the private names, internal modules, versions and tests for features of pyspark, except in docstrings.

    A private attribute is one of pyspark if its name is known, or if the module does not define it. In comments, only
    a version counts.
    """
    tree = ast.parse(source)
    own = own_names(tree)
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = [each.string for each in tokens if each.type == tokenize.COMMENT]
    found = [*filter(VERSION.fullmatch, comments), *detected_features(tree)]
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name("self" | "cls"), attr=name) if name in own:
                pass
            case ast.Attribute(attr=name) if PRIVATE.fullmatch(name) or (
                re.match("_[a-z]", name) and name not in own
            ):
                found.append(name)
            case ast.Attribute(value=ast.Name("pyspark"), attr="__version__"):
                found.append("pyspark.__version__")
            case ast.Constant(value=str(text)) if id(node) not in texts and any(
                pattern.fullmatch(text) for pattern in (PRIVATE, INTERNAL, VERSION)
            ):
                found.append(text)
            case ast.Import(names=names):
                found += [each.name for each in names if INTERNAL.fullmatch(each.name)]
            case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0] == "pyspark":
                parts = [f"{module}.{each.name}" for each in names]
                found += [part for part in parts if INTERNAL.fullmatch(part) or "._" in part]
    return found


def test_no_module_but_these_knows_a_version_or_a_private_name_of_pyspark():
    paths = [*PACKAGE.rglob("*.py"), *(ROOT / "jobs").rglob("*.py"), ROOT / "pyspark_conditional_log.py"]
    found = {path: ties for path in paths if (ties := ties_to_pyspark(path.read_text()))}
    allowed = tuple(str(PACKAGE / name) for name in MAY_KNOW_PYSPARK)
    assert {path: ties for path, ties in found.items() if not str(path).startswith(allowed)} == {}


@pytest.mark.parametrize(
    "source",
    [
        "x = spark._jvm",
        "getattr(spark, '_jsc')",
        "df._plan",
        "self._other_name_of_a_base",
        "def f(self): self._session = spark._session",
        "if pyspark.__version__ < '4.1': pass",
        "if '4.1' in version: pass",
        "x = 1  # before pyspark 4.1",
        "if re.match(r'pyspark>=4.0', required): pass",
        "if hasattr(df, 'repartitionById'): pass",
        "from spark_cas.spark.versions import HAS_READ_LIMITS",
        "if versions.HAS_READ_LIMITS: pass",
        "try:\n  from pyspark.sql.types import TimeType\nexcept (ImportError, KeyError): pass",
        "raise E(f'{name} needs pyspark 4.2 or newer')",
        "from pyspark.sql.utils import _x",
        "import pyspark.daemon",
        "from pyspark.serializers import SpecialLengths",
        "from pyspark.sql import worker",
        "'pyspark.sql.worker.python_streaming_sink_runner' in sys.modules",
        "SparkContext._ensure_initialized()",
    ],
)
def test_ties_to_pyspark_are_detected(source):
    assert ties_to_pyspark(source)


def test_own_names_and_docstrings_are_no_ties_to_pyspark():
    assert ties_to_pyspark("'pyspark 4.2'\nclass A:\n  def f(self): return self._own\n  def _own(self): pass") == []


def test_every_decision_has_a_status():
    assert [path for path in ROOT.glob("docs/decisions/*") if not has_status(path.read_text())] == []
    assert has_status("# A title\n\nStatus: accepted\n")
    assert not has_status("# A title\n\nStatus:\n\nThe status of this is open.\n")


def targets_without_comment(makefile: str) -> list[str]:
    targets = re.findall(r"^([a-z][\w-]*):(?!=)(.*)$", makefile, re.MULTILINE)
    return [name for name, rest in targets if not re.search(r" ## \w", rest)]


def test_every_make_target_has_a_description():
    assert targets_without_comment((ROOT / "Makefile").read_text()) == []
    assert targets_without_comment("env: x ## make it\nunit: env\n\tpytest\n") == ["unit"]


FOREIGN = {
    "a machine's path": r"(?<![\w.*~$)}-])/(work|root|home|Users)/\w",
    "a registry": r"registry\.npmjs|registry\.yarnpkg|pypi\.org/simple|pythonhosted\.org|index-url",
    "a resolved address": r'"resolved": "',
}


def foreign(text: str) -> list[str]:
    return [what for what, pattern in FOREIGN.items() if re.search(pattern, text)]


def project_files() -> list[Path]:
    """Return all files that are or would be committed, except this one, which contains the patterns."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [ROOT / line for line in listed.splitlines()]
    return [path for path in paths if path.is_file() and path != Path(__file__)]


def test_no_file_names_a_machine_or_a_registry():
    files = project_files()
    assert ROOT / "pyproject.toml" in files
    found = {str(path): foreign(path.read_text(errors="replace")) for path in files}
    assert {path: what for path, what in found.items() if what} == {}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('log = "/work/main/log"', "a machine's path"),
        ("file:///home/me/log", "a machine's path"),
        ("--index-url https://mirror", "a registry"),
        ('"resolved": "https://mirror/azurite.tgz"', "a resolved address"),
    ],
)
def test_names_of_machines_and_registries_are_detected(text, what):
    assert foreign(text) == [what]
    assert foreign("build/work/log and s3://bucket/home/log") == []


def test_the_sample_configuration_shows_the_real_defaults():
    limits = ChunkLimits()
    assert tomllib.loads((ROOT / "conf/conditional-log.toml").read_text())["defaults"] == {
        "maxRecordsPerChunk": limits.max_records,
        "maxBytesPerChunk": limits.max_bytes,
        "maxSecondsPerChunk": limits.max_seconds,
    }


def test_no_contract_hides_a_test_of_another():
    """Backends inherit all contracts. If two tests had one name, only one of them would run."""
    files = [file for file in (ROOT / "tests/contract").glob("*.py") if not file.name.startswith("test_")]
    sources = [file.read_text() for file in files]
    assert len(sources) > 10
    assert names_twice(sources) == []
    assert names_twice(["    def test_a(self):", "    def test_b(self):\n    def test_a(self):"]) == ["test_a"]


def names_twice(sources: list[str]) -> list[str]:
    names = Counter(name for source in sources for name in re.findall(r"def (test_\w+)", source))
    return sorted(name for name, count in names.items() if count > 1)
