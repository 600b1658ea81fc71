"""spark-submit jobs/bulk_load.py: append files to a log exactly once. See --help."""

import sys

from spark_cas.programs.bulk_load import main
from spark_cas.programs.program import submitted_session

if __name__ == "__main__":
    code = main(sys.argv[1:], "bulk_load.py", lambda shown: submitted_session("bulk load", show_log=shown))
    if code:  # a platform that runs programs within its own process may report any sys.exit as a failure
        sys.exit(code)
