"""spark-submit jobs/bootstrap_state.py: save the state of a log, with its end offsets. See --help."""

import sys

from spark_cas.programs.bootstrap_state import main
from spark_cas.programs.program import submitted_session

if __name__ == "__main__":
    sys.exit(
        main(sys.argv[1:], "bootstrap_state.py", lambda shown: submitted_session("bootstrap state", show_log=shown))
    )
