"""The output of a run: lines to print, and a folder with a README that explains it."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from spark_cas.testing.history import Found
from tests.chaos.run import Outcome
from tests.chaos.timeline import page

_SHOWN = 20

_README = """# Chaos on {backend}, seed {seed}, {seconds:.0f} s

    python -m tests.chaos --backend {backend} --seed {seed} --seconds {seconds:.0f}{options} --into FOLDER

```
{lines}
```

| file | what it is |
| --- | --- |
| `timeline.html` | all of it to look at in a browser: a row for each process, operations as bars, faults as bands |
| `history/NAME.jsonl` | what each client asked and was told: a line at the start of an operation, another when it heard what came; `nemesis.jsonl` are the faults |
| `records/PARTITION.jsonl` | the records that a reader found when all had calmed down: offset, key, value |
| `schedule.json` | the faults that the seed named, in seconds since the begin |
| `violations.txt` | what was not as promised, by the numbers in `spark_cas/testing/history/check_log.py`, and 16: Porcupine finds no order of what clients of the key-value store were told; 17: two loads had a grant for a partition at once; 18: see `tests/chaos/spark/judging.py`; 19: see `tests/chaos/kv/written.py`; empty when all was |
| `NAME.out` | what a client process printed: warnings of waits, and its defect if it ended in one |
| `spark/` | of a run with Spark: what master and workers printed, and below each worker its executors by application |

How to read a violation: it names a job, such as `w2-17`, the 17th append of client w2. `grep '"w2-17"' history/*.jsonl`
shows each attempt at it with what was told, `grep w2-17/ records/*.jsonl` where its records lie, and the timeline what
went wrong at that moment. Of the store it names keys: `grep KEY history/*.jsonl records/*.jsonl`. The seed gives the same schedule again, not the same interleaving: run it a few times.
`ok`, `fail` and `info` are Jepsen's: it took place, it definitely did not and will not, nobody knows.
"""  # noqa: E501 - the lines of a table


def lines(outcome: Outcome) -> list[str]:
    """Return the summary of the run."""
    counts = outcome.counts
    told = ", ".join(f"{name} {event} {count}" for (name, event), count in sorted(counts.items()))
    records = sum(map(len, outcome.log.values()))
    return [
        f"seed {outcome.seed} on {outcome.backend} for {outcome.seconds:.0f} s",
        f"operations {sum(counts.values())}: {told}; told {_each(outcome.kinds)}",
        f"records {records} in {len(outcome.log)} partitions",
        f"faults {sum(outcome.struck.values())}: {_each(outcome.struck)}",
        f"verdict: {'NOT AS PROMISED' if outcome.violations else 'as promised'}",
        *(f"  {each}" for each in outcome.violations[:_SHOWN]),
    ]


def leave(outcome: Outcome, folder: Path) -> None:
    """Write the files that the README lists, except those that the run has already written."""
    options = f" --faults {' '.join(outcome.chosen)}" if outcome.chosen else ""
    options += f" --sessions {outcome.sessions}" if outcome.sessions > 1 else ""
    fields = {"backend": outcome.backend, "seed": outcome.seed, "seconds": outcome.seconds, "options": options}
    (folder / "README.md").write_text(_README.format(lines="\n".join(lines(outcome)), **fields))
    (folder / "timeline.html").write_text(page(outcome))
    planned = [[each.begin, each.end, each.kind, each.seed] for each in outcome.planned]
    (folder / "schedule.json").write_text("\n".join(json.dumps(each) for each in planned) + "\n")
    (folder / "violations.txt").write_text("".join(f"{each}\n" for each in outcome.violations))
    _write_log(outcome.log, folder / "records")


def _write_log(log: Mapping[int, Sequence[Found]], folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for partition, records in log.items():
        text = "".join(f"{json.dumps([offset, key, value])}\n" for offset, (key, value) in records)
        (folder / f"{partition}.jsonl").write_text(text)


def _each(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"
