"""spark-submit jobs/expand_partitions.py: add partitions to a log, if you can only run jobs.

Elsewhere use `spark-cas expand`.
"""

import sys

from spark_cas.cli import main

if __name__ == "__main__":
    sys.exit(main(["expand", *sys.argv[1:]]))
