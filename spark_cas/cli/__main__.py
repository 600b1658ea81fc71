"""Run ``spark-cas`` as ``python -m spark_cas.cli``."""

import sys

from spark_cas.cli import main

sys.exit(main())
