"""spark-submit jobs/stream_copy.py: copy a log or topic into another as a stream, exactly once. See --help."""

import sys

from spark_cas.programs.program import submitted_session
from spark_cas.programs.stream_copy import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], "stream_copy.py", lambda shown: submitted_session("stream copy", show_log=shown)))
