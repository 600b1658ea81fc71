"""The search for the programs that tests start."""

import pytest

from tests.executables import MissingProgramError, executable


def program_in(folder, name):
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return str(program)


def test_program_of_environment_precedes_path(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.executables.sysconfig.get_path", lambda _: str(tmp_path / "scripts"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    with pytest.raises(MissingProgramError):
        executable("tool")
    on_path = program_in(tmp_path / "path", "tool")
    assert executable("tool") == on_path
    installed = program_in(tmp_path / "scripts", "tool")
    assert executable("tool") == installed
