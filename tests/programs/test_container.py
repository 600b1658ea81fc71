"""The image of conf/container/Dockerfile: built with a builder, or else its steps run in a folder."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path
from uuid import uuid4

import pytest

from tests.spark_cluster import SPARK_HOME

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "conf/container/Dockerfile"
PROGRAMS = sorted(each.name for each in (ROOT / "jobs").glob("*.py") if not each.name.startswith("demo"))
WHERE = "import os, spark_cas; print(os.path.dirname(spark_cas.__file__))"


class UnknownStepError(Exception):
    """The Dockerfile has a step that this test does not run."""


def instructions(text):
    """Return the instructions of a Dockerfile as pairs of keyword and arguments."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [tuple(line.split(maxsplit=1)) for line in joined.splitlines()]


class Folder:
    """A folder that represents an image. Steps of the Dockerfile run in it."""

    def __init__(self, root, context, python, *, installs=True):
        self.root = root
        self.user = "root"
        self.command = []
        self._entry_point = ""
        self._context = context
        self._python = python
        self._installs = installs
        self._packages = root / "packages"
        self.package = str(self._packages / "spark_cas")
        self._users = {"root"}
        self._working = "/"
        self._variables = {}

    def run_all(self, text):
        first, *steps = instructions(text)
        assert first[0] == "FROM"
        for keyword, arguments in steps:
            getattr(self, f"_{keyword.lower()}", self._unknown)(arguments)

    def run(self, *command):
        """Run a command as the image would, with the installed package and the dependencies of the tests."""
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))},
            **self._variables,
            "PATH": os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]),
            "PYSPARK_PYTHON": str(self._python),
            "PYTHONPATH": str(self._packages),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        return subprocess.run(
            [self._entry_point, str(self._python) if command[0] == "python" else command[0], *command[1:]],
            cwd=self._path("."),
            env=environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=300,
        )

    def _path(self, path):
        return self.root / (Path(self._working) / path).relative_to("/")

    def _unknown(self, arguments):
        raise UnknownStepError(arguments)

    def _workdir(self, path):
        self._working = path
        self._path(".").mkdir(parents=True, exist_ok=True)

    def _env(self, assignment):
        name, value = assignment.split("=", 1)
        self._variables[name] = value.replace("/opt/", f"{self.root}/opt/")

    def _copy(self, arguments):
        *sources, target = arguments.split()
        for name in sources:
            source = self._context / name
            if not source.exists():
                raise FileNotFoundError(source)
            if source.is_dir():
                shutil.copytree(source, self._path(target))
            else:
                assert target.endswith("/"), f"{target} is no folder"
                self._path(target).mkdir(parents=True, exist_ok=True)
                shutil.copy(source, self._path(target))

    def _run(self, script):
        for command in script.split("&&"):
            words = shlex.split(command)
            if words[:2] == ["pip", "install"]:
                self._pip_install(words[2:])
            elif words[0] == "useradd":
                self._users.add(words[-1])
            elif words[:2] not in (["apt-get", "update"], ["apt-get", "install"], ["rm", "-rf"]):
                raise UnknownStepError(command)

    def _pip_install(self, arguments):
        [source] = [each for each in arguments if each.startswith("/")]
        folder = self._path(source.partition("[")[0])
        if not (folder / "pyproject.toml").is_file():
            raise FileNotFoundError(folder)
        if not self._installs:
            return
        pip = ["pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target", self._packages]
        subprocess.run([*pip, folder], check=True, timeout=300)

    def _user(self, name):
        assert name in self._users, f"no step adds the user {name}"
        self.user = name

    def _entrypoint(self, arguments):
        [script] = json.loads(arguments)
        self._entry_point = self._path(script)

    def _cmd(self, arguments):
        self.command = json.loads(arguments)


class Image:
    """An image that a builder built."""

    command = ("spark-submit", "jobs/bulk_load.py", "--help")
    package = "/usr/local/lib/python3.11/site-packages/spark_cas"

    def __init__(self, builder):
        self._builder = builder
        self._name = f"spark-cas-test:{uuid4().hex[:12]}"

    def __enter__(self):
        build = [self._builder, "build", "--file", DOCKERFILE, "--tag", self._name, ROOT]
        subprocess.run(build, check=True, timeout=800)
        return self

    def __exit__(self, *_):
        subprocess.run([self._builder, "rmi", "--force", self._name], check=True, timeout=300)

    @property
    def user(self):
        return self.run("id", "--user", "--name").stdout.strip()

    def run(self, *command):
        started = [self._builder, "run", "--rm", self._name, *command]
        return subprocess.run(started, check=False, capture_output=True, text=True, timeout=300)


def ready_builders():
    """Return the builders that can build. A docker client without its engine cannot."""
    programs = [program for program in map(shutil.which, ("docker", "podman")) if program]
    return [
        each for each in programs if subprocess.run([each, "info"], check=False, capture_output=True).returncode == 0
    ]


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    """The files that the builder receives: those with a line in the ignore file."""
    folder = tmp_path_factory.mktemp("context")
    for line in DOCKERFILE.with_name("Dockerfile.dockerignore").read_text().splitlines():
        if line.startswith("!"):
            source, target = ROOT / line[1:], folder / line[1:]
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, target)
    return folder


@pytest.fixture(scope="module")
def folder(context, dependencies_python, tmp_path_factory):
    """The steps of the Dockerfile, run in a folder."""
    result = Folder(tmp_path_factory.mktemp("image"), context, dependencies_python)
    result.run_all(DOCKERFILE.read_text())
    return result


@pytest.fixture(scope="module", params=["folder", *ready_builders()[:1]])
def image(request):
    if request.param == "folder":
        yield request.getfixturevalue("folder")
    else:
        with Image(request.param) as built:
            yield built


def test_package_is_installed(image):
    assert image.run("python", "-c", WHERE).stdout.strip() == image.package


@pytest.mark.parametrize("program", PROGRAMS)
def test_program_starts(program, image):
    shown = image.run("python", f"jobs/{program}", "--help")
    assert shown.returncode == 0, shown.stderr
    command = "spark-cas expand" if program == "expand_partitions.py" else program
    assert f"usage: {command} " in shown.stdout


def test_command_of_image_starts_spark_submit(image):
    shown = image.run(*image.command)
    assert shown.returncode == 0, shown.stderr
    assert "usage: bulk_load.py" in shown.stdout


def test_user_is_not_root(image):
    assert image.user == "spark"


def test_pyspark_is_the_version_that_make_installs():
    [version] = re.findall(r"^PYSPARK := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert f"'pyspark=={version}'" in DOCKERFILE.read_text()


@pytest.mark.full
def test_load_in_folder_is_complete(folder, tmp_path):
    (tmp_path / "rows.csv").write_text("k,n\na,1\nb,2\n")
    arguments = ["--input", tmp_path / "rows.csv", "--key", "k", "--value-json", "--log", tmp_path / "log"]
    load = folder.run("spark-submit", "--master", "local[1]", "jobs/bulk_load.py", *arguments, "--partitions", "2")
    assert load.returncode == 0, load.stdout
    assert json.loads(load.stdout.splitlines()[-1])["rows"] == 2
    assert "rows=2" in load.stderr, "the line of the write"


@pytest.fixture
def empty(context, dependencies_python, tmp_path):
    """A folder in which no step was run. Its steps do not install the package."""
    return Folder(tmp_path, context, dependencies_python, installs=False)


@pytest.mark.parametrize(
    ("right", "wrong", "error"),
    [
        ("COPY spark_cas ", "COPY spark_cas_absent ", FileNotFoundError),
        ("jobs/verify_log.py", "jobs/verify.py", FileNotFoundError),
        ("'/opt/source[spark]'", "'/opt/absent[spark]'", FileNotFoundError),
        ("USER spark", "USER absent", AssertionError),
        ("RUN useradd", "RUN adduser", UnknownStepError),
        ("CMD [", "SHELL [", UnknownStepError),
    ],
)
def test_wrong_dockerfile_fails(right, wrong, error, empty):
    text = DOCKERFILE.read_text()
    assert right in text
    with pytest.raises(error):
        empty.run_all(text.replace(right, wrong))
