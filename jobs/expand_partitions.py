"""spark-submit jobs/expand_partitions.py: add partitions to a log. `spark-cas expand`, where only jobs can be run."""

import sys

from spark_cas.cli import main

if __name__ == "__main__":
    main(["expand", *sys.argv[1:]])
