"""Run ``spark-cas`` as ``python -m spark_cas.cli``."""

from spark_cas.cli import main

main()
