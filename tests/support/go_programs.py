"""Servers that Go builds from their sources, once into a cache."""

import os
import subprocess
import tempfile
from pathlib import Path

from tests.executables import executable
from tools.kafka_broker.jars import cache_folder

_BUILD_SECONDS = 900
"""The time limit includes the download of the modules."""


def built(module: str, version: str, package: str = "") -> Path:
    """Build a program unless the cache has it, and return its path.

    Args:
        module: The path of the Go module.
        version: Its version.
        package: The folder of the program in the module.
    """
    source = f"{module}/{package}".rstrip("/")
    program = cache_folder() / Path(source).name / version / Path(source).name
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=program.parent) as folder:
            # A module of its own needs no list of versions, which some proxies do not serve.
            (Path(folder) / "go.mod").write_text(f"module built\nrequire {module} {version}\n")
            command = [executable("go"), "build", "-mod=mod", "-o", program.name, source]
            environment = os.environ | {"GOFLAGS": ""}
            subprocess.run(command, cwd=folder, env=environment, check=True, timeout=_BUILD_SECONDS)
            # Several processes may build at the same time: each moves a complete program to the path.
            (Path(folder) / program.name).replace(program)
    return program
