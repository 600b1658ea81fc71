"""spark-submit jobs/verify_log.py: prove that a log has exactly the rows of files. See --help."""

import sys

from spark_cas.programs.program import submitted_session
from spark_cas.programs.verify_log import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], "verify_log.py", lambda shown: submitted_session("verify log", show_log=shown)))
