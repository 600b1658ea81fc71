"""``python -m spark_cas.cli`` is ``spark-cas``."""

from spark_cas.cli import main

main()
