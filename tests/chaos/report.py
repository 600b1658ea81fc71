"""The output of a run: lines to print, and a folder with a README that explains it."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.chaos.run import Outcome
from tests.chaos.timeline import page
from tests.history.records import Found

_SHOWN = 20

_README = """# Chaos on {backend}, seed {seed}, {seconds:.0f} s

    python -m tests.chaos --backend {backend} --seed {seed} --seconds {seconds:.0f}{options} --into FOLDER

```
{lines}
```

| file | content |
| --- | --- |
| `timeline.html` | the run as a page for a browser: a row for each process, operations as bars, faults as bands |
| `history/NAME.jsonl` | the operations of each client: a line at the start of an operation, and another for its result; `nemesis.jsonl` has the faults |
| `records/PARTITION.jsonl` | the records of the log after the end of the last fault: offset, key, value |
| `schedule.json` | the faults that the seed selects, in seconds since the start |
| `violations.txt` | the violations, by the numbers in `tests/history/check_log.py`, and 16: Porcupine finds no linearization of the replies to clients of the key-value store; 17: two loads held the lock of a partition at the same time; 18: see `tests/chaos/spark/judging.py`; 19: see `tests/chaos/kv/written.py`; empty if there is none |
| `NAME.out` | the output of a client process: warnings of waits, and its error if it fails |
| `spark/` | for a run with Spark: the output of the master and the workers, and for each worker the output of its executors by application |

How to read a violation: it names a job, such as `w2-17`, the 17th append of client w2. `grep '"w2-17"' history/*.jsonl`
shows each attempt with its result. `grep w2-17/ records/*.jsonl` shows its records. The timeline shows the faults at
that moment. A violation of the key-value store names keys: `grep KEY history/*.jsonl records/*.jsonl`. The seed
repeats the schedule but not the interleaving, so run it a few times. The outcomes are those of Jepsen: `ok` succeeded,
`fail` definitely failed, and `info` is unknown.
"""  # noqa: E501 - the lines of a table


def lines(outcome: Outcome) -> list[str]:
    """Return the summary of the run."""
    counts = outcome.counts
    events = ", ".join(f"{name} {event} {count}" for (name, event), count in sorted(counts.items()))
    records = sum(map(len, outcome.log.values()))
    return [
        f"seed {outcome.seed} on {outcome.backend} for {outcome.seconds:.0f} s",
        f"operations {sum(counts.values())}: {events}; errors {_each(outcome.kinds)}",
        f"records {records} in {len(outcome.log)} partitions",
        f"faults {sum(outcome.struck.values())}: {_each(outcome.struck)}",
        f"verdict: {'VIOLATIONS' if outcome.violations else 'no violation'}",
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
