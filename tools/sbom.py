"""make sbom: write a software bill of materials of the installed package and its dependencies, in CycloneDX 1.6."""

import json
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PACKAGE = "spark-cas"
_DEVELOPMENT = {"bench", "demo", "docs", "notebooks", "test"}
"""The extras that no user needs."""


def main(arguments: list[str]) -> int:
    """Write the bill to a file."""
    [path] = arguments
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    extras = {*distribution(PACKAGE).metadata.get_all("Provides-Extra", ())} - _DEVELOPMENT
    Path(path).write_text(json.dumps(bill_of(PACKAGE, extras), indent=2) + "\n")
    return 0


def bill_of(package: str, extras: Iterable[str] = ()) -> dict[str, object]:
    """Return the bill of an installed package with its extras. Equal environments have equal bills."""
    requires: dict[str, list[str]] = {}
    extras_of = {canonicalize_name(package): set(extras)}
    remaining = [*extras_of]
    while remaining:
        name = remaining.pop()
        requires[name] = []
        for requirement in _requirements(name, extras_of[name]):
            needed = canonicalize_name(requirement.name)
            requires[name].append(needed)
            known = extras_of.setdefault(needed, set())
            if needed not in requires or not requirement.extras <= known:
                known |= requirement.extras
                remaining.append(needed)
    components = {name: _component(distribution(name)) for name in sorted(requires)}
    root = components.pop(canonicalize_name(package))
    references = {name: each["bom-ref"] for name, each in (*components.items(), (canonicalize_name(package), root))}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": root},
        "components": [*components.values()],
        "dependencies": [
            {"ref": references[name], "dependsOn": sorted({references[each] for each in needed})}
            for name, needed in sorted(requires.items())
        ],
    }


def _requirements(name: str, extras: set[str]) -> list[Requirement]:
    """Return the requirements of an installed package that apply to this environment and these extras."""
    parsed = map(Requirement, distribution(name).requires or ())
    return [
        each
        for each in parsed
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in {"", *extras})
    ]


def _component(installed: Distribution) -> dict[str, str | list[dict[str, dict[str, str]]]]:
    name = canonicalize_name(installed.name)
    url = f"pkg:pypi/{name}@{installed.version}"
    component: dict[str, str | list[dict[str, dict[str, str]]]] = {
        "type": "library",
        "bom-ref": url,
        "name": name,
        "version": installed.version,
        "purl": url,
    }
    licence = installed.metadata.json.get("license_expression")
    return component | ({"licenses": [{"license": {"name": str(licence)}}]} if licence else {})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
