"""Run the bulk load within the shared Spark session, and read the log back."""

import json

from spark_cas import open_log
from spark_cas.programs.bulk_load import main
from tests.support.writing import records_in


def all_records(log_path):
    with open_log(log_path) as log:
        return [records_in(log, partition) for partition in range(log.layout().partitions)]


class Loader:
    """A function that runs the bulk load within the shared session."""

    def __init__(self, spark, capsys, log):
        self.spark = spark
        self.capsys = capsys
        self.log = log
        self.sessions = 0

    def start(self, _):
        self.sessions += 1
        return self.spark

    def __call__(self, *argv):
        """Return the exit code, the JSON line and the text on stderr."""
        code = main([*argv, "--log", self.log], "bulk_load.py", self.start)
        out, told = self.capsys.readouterr()
        report = json.loads(out.splitlines()[-1])
        assert report["exit_code"] == code
        return code, report, told
