"""A load stores exactly the rows that independent parsers read from its files, in the order of each file.

If LOAD_FILES is set, it is the number of files over all formats, and the examples are random.
"""

import os
from contextlib import suppress
from itertools import count

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from spark_cas.core.errors import LogNotFoundError
from tests.programs.generated_files import FILES
from tests.programs.loading import Loader, all_records

pytestmark = pytest.mark.spark

COUNT = int(os.environ.get("LOAD_FILES", "0"))
FILES_PER_LOAD = 3.5
"""On average."""
LOADS = max(1, int((COUNT or 140) / FILES_PER_LOAD / len(FILES)))
# A load takes a second, so a smaller example is searched only by hand.
PHASES = [Phase.generate, Phase.shrink] if COUNT else [Phase.generate]
NAMES = st.sampled_from(["a", "a b", "a%20b", "[1]", "{x}", "\u00fc", "a+b", "#?&"])


@pytest.mark.timeout(0 if COUNT else 240)
@pytest.mark.parametrize("name", FILES)
def test_log_has_the_rows_of_an_independent_parser(spark, capsys, tmp_path, name):
    numbers = count()
    totals = {"loads": 0, "accepted": 0, "files": 0}

    @settings(max_examples=LOADS, derandomize=not COUNT, phases=PHASES, suppress_health_check=list(HealthCheck))
    @given(load=FILES[name], names=st.lists(NAMES, min_size=5, max_size=5))
    def loads(load, names):
        place = tmp_path / str(next(numbers))
        inputs = place / "in"
        inputs.mkdir(parents=True)
        for at, (data, suffix) in enumerate(zip(load.files, load.suffixes, strict=True)):
            (inputs / f"{at}{names[at]}.{load.format}{suffix}").write_bytes(data)
        log = str(place / "log")
        code, report, said = Loader(spark, capsys, log)(
            *("--input", str(inputs), "--format", load.format, "--job", "j", "--partitions", "1"),
            *load.arguments,
        )
        totals["loads"] += 1
        totals["files"] += len(load.files)
        if code == 2:
            assert not load.is_valid, said
            assert report["rows"] == 0
            with suppress(LogNotFoundError):
                assert not any(all_records(log))
            return
        assert code == 0, said
        totals["accepted"] += 1
        assert report["rows"] == sum(map(len, all_records(log)))
        load.assert_equal([record for _, record in all_records(log)[0]])

    loads()
    assert totals["accepted"] >= 0.8 * totals["loads"], totals
    with capsys.disabled():
        print(f"{name}: {totals}", end=" ")  # noqa: T201
