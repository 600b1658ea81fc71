"""Add the store faults to each Python process that Spark starts.

Python imports this at startup if the folder is on PYTHONPATH.

The environment variable SPARK_CAS_TROUBLES names the folder of the faults (see `tests.chaos.troubled_store`).
"""

import importlib.abc
import importlib.machinery
import os
import sys
from pathlib import Path

_TROUBLES = os.environ.get("SPARK_CAS_TROUBLES", "")
_OPENS = "spark_cas.log.objects.object_log"


class _Finder(importlib.abc.MetaPathFinder):
    """Find the module that opens stores when it is imported, and not earlier."""

    def find_spec(self, fullname, path, target=None):
        if fullname != _OPENS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    """Make the module open each store with faults."""

    def exec_module(self, module):
        super().exec_module(module)
        from tests.chaos.troubled_store import TroubledStore

        open_store = module.open_store
        module.open_store = lambda spec: TroubledStore(open_store(spec), Path(_TROUBLES))


if _TROUBLES:
    sys.meta_path.insert(0, _Finder())
