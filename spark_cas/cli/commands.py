"""`spark-cas`: load files, read, trim, expand and diagnose a log, and abort and forget jobs."""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

from spark_cas import __version__
from spark_cas.cli.command_line import CommandLine, add_log, add_log_options, whole_number
from spark_cas.programs.arguments import Group, add_options, add_registry

_JSON = "one JSON object"
_JSON_LINES = "one JSON object per line"
_SCRIPT = """\
_spark_cas() {{
    local words=""
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="{commands}"
    elif [[ "${{COMP_WORDS[COMP_CWORD]}}" == -* ]]; then
        case "${{COMP_WORDS[1]}}" in
{cases}
        esac
    fi
    [ -z "$words" ] || COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _spark_cas spark-cas"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program, by default with the arguments of this process, and return the exit code."""
    argv = sys.argv[1:] if argv is None else [*argv]
    if argv[:1] == ["load"]:
        from spark_cas.programs.bulk_load import main as bulk_load
        from spark_cas.programs.program import local_session

        prog = "spark-cas load"
        return bulk_load(argv[1:], prog, lambda show_log: local_session(prog, show_log=show_log))
    return command_line().run(argv, _execute)


def command_line() -> CommandLine:
    """Return the commands and their arguments."""
    program = CommandLine(
        "spark-cas", "Conditional publish for Spark: logs that store each row exactly once, at the expected offset."
    )
    program.parser.epilog = (
        "exit codes: 0 done; 1 failed, run it again; 2 to 7 a retry fails until you fix the cause ('spark-cas load "
        "--help' lists them); 8 and 9 'doctor' found a problem; 130 interrupted."
    )
    program.parser.add_argument("--version", action="version", version=f"spark-cas {__version__}")
    # `main` passes its arguments to the bulk load.
    program.add_command("load", "Load files exactly once, with Spark on this machine. See 'spark-cas load --help'.")
    describe = program.add_command(
        "describe", "Show a log: its layout, the offsets of each partition, its jobs and load locks."
    )
    _add_log_and_json(describe, _JSON)
    offsets = program.add_command(
        "offsets",
        "Show the offsets of each partition. The next conditional write of a partition expects its end offset.",
    )
    _add_log_and_json(offsets, _JSON_LINES)
    progress = program.add_command("progress", "Show the progress of each job in each partition.")
    _add_log_and_json(progress, _JSON_LINES)
    progress.add_argument("--job", help="only this job")
    jobs = program.add_command("jobs", "List the jobs of a log: state, rows, times and offsets.")
    _add_log_and_json(jobs, _JSON_LINES)
    _add_doctor(program)
    _add_read(program)
    _add_tail(program)
    expand = program.add_command(
        "expand",
        "Add partitions, and keep the order of each key (KIP-253). After an interruption, run the command again.",
    )
    _add_log_and_json(expand, _JSON)
    expand.add_argument(
        "--partitions", type=int, required=True, metavar="N", help="the new number of partitions of the log"
    )
    _add_dry_run(expand)
    abort = program.add_command(
        "abort", "End an abandoned load that blocks other loads: release its load lock, and abort its undecided rows."
    )
    abort.add_argument("job", metavar="JOB", help="the job, as 'describe' lists it")
    _add_log_and_json(abort, _JSON)
    _add_dry_run(abort)
    _add_forget(program)
    trim = program.add_command(
        "trim",
        "Delete old records. A directory or object store deletes whole chunks, but never the newest one.",
    )
    _add_log_and_json(trim, f"{_JSON_LINES}, for each partition")
    _add_number(trim, "--partition", "P", "the partition to trim; default with --older-than: all")
    _add_number(trim, "--before", "OFFSET", "with --partition: delete records below this offset")
    trim.add_argument(
        "--older-than",
        metavar="DURATION",
        help="delete the records before the first one whose timestamp is at most this old, such as 12h or 90d",
    )
    _add_dry_run(trim)
    program.add_command(
        "completion", "Print a completion script for bash. Use it with: source <(spark-cas completion)"
    )
    return program


def _add_doctor(program: CommandLine) -> None:
    doctor = program.add_command(
        "doctor",
        "Find the problems of a log, and the command that fixes each. Exit code 0 none, 8 a warning, 9 an error.",
    )
    _add_log_and_json(doctor, "one JSON object with all findings")
    abort = doctor.add_argument_group("abort transactions of a topic; default: those of this log's writers")
    abort.add_argument("--abort", action="store_true", help="abort open transactions, and report nothing else")
    _add_number(abort, "--producer-id", "ID", "abort the transaction of this producer, exactly")
    _add_number(abort, "--producer-epoch", "EPOCH", "the epoch of the producer")
    _add_number(abort, "--partition", "P", "a partition of the transaction")
    abort.add_argument("--yes", action="store_true", help="abort another producer's transaction without a prompt")


def _add_log_and_json(command: argparse.ArgumentParser, form: str) -> None:
    add_log(command)
    _add_json(command, form)


def _add_json(command: Group, form: str) -> None:
    command.add_argument("--json", action="store_true", help=form)


def _add_dry_run(command: argparse.ArgumentParser) -> None:
    command.add_argument("--dry-run", action="store_true", help="check and show the change, but make none")


def _add_number(group: Group, name: str, metavar: str, help_text: str, **settings: Any) -> None:  # noqa: ANN401 - those of argparse
    group.add_argument(name, type=whole_number, metavar=metavar, help=help_text, **settings)


def _add_read(program: CommandLine) -> None:
    read = program.add_command(
        "read", "Show the records of each partition: partition, offset, time (UTC), key, value, headers."
    )
    add_log(read)
    _add_records(read)
    read.add_argument(
        "--since",
        metavar="DURATION",
        help="from the first record whose timestamp is at most this old, such as 90s, 15m, 1h or 2d",
    )
    first = "with --partition: the first offset; default: the start of the partition"
    _add_number(read, "--from", "OFFSET", first, dest="base_offset")
    end = "with --partition: the offset before which to stop; default: the end of the partition"
    _add_number(read, "--to", "OFFSET", end, dest="end_offset")
    _add_number(read, "--limit", "N", "the maximum number of records")


def _add_tail(program: CommandLine) -> None:
    tail = program.add_command("tail", "Show the newest records of each partition, in the format of 'read'.")
    add_log(tail)
    _add_records(tail)
    _add_number(tail, "-n", "N", "the number of records of each partition; default: 10", dest="count", default=10)
    tail.add_argument("--follow", action="store_true", help="continue with new records, until Ctrl-C")


def _add_records(command: argparse.ArgumentParser) -> None:
    _add_number(command, "--partition", "P", "only this partition")
    command.add_argument("--key", metavar="KEY", help="only records with this key")
    add_options(
        command, "--headers", "NAME=VALUE", "only records with this header; repeat it for records with all of them"
    )
    command.add_argument(
        "--value-format",
        choices=["text", "json", "avro"],
        default="text",
        help="json and avro show each value as JSON, and end at a record that has another format; default: text",
    )
    add_registry(command)
    output = command.add_mutually_exclusive_group()
    _add_json(output, _JSON_LINES)
    output.add_argument(
        "-f",
        "--format",
        metavar="FORMAT",
        help=r"as kcat, such as '%%o: %%k = %%s\n': topic %%t, partition %%p, offset %%o, timestamp %%T, key %%k, "
        r"value %%s, their sizes %%K and %%S, headers %%h",
    )


def _add_forget(program: CommandLine) -> None:
    forget = program.add_command(
        "forget",
        "Remove the entries of jobs permanently. Their rows stay. A load with the same name appends its rows again.",
    )
    forget.add_argument("jobs", nargs="*", metavar="JOB", help="the jobs, and after them the LOG")
    add_log_options(forget)
    _add_json(forget, f"{_JSON_LINES}, for each job")
    forget.add_argument(
        "--older-than",
        metavar="DURATION",
        help="replaces JOB: all jobs that were completed at least this long ago, such as 90d",
    )
    forget.add_argument(
        "--force", action="store_true", help="also a job that is not complete, or that ended within the last hour"
    )
    _add_dry_run(forget)


def _execute(arguments: argparse.Namespace) -> int | None:
    # Import here: --help and usage errors do not need the log.
    from spark_cas.cli import diagnosing, jobs_and_offsets, records

    commands: dict[str, Callable[[argparse.Namespace], int | None]] = {
        "abort": jobs_and_offsets.abort,
        "completion": _show_completion,
        "describe": jobs_and_offsets.describe,
        "doctor": diagnosing.doctor,
        "expand": jobs_and_offsets.expand,
        "forget": jobs_and_offsets.forget,
        "jobs": jobs_and_offsets.jobs,
        "offsets": jobs_and_offsets.offsets,
        "progress": jobs_and_offsets.progress,
        "read": records.read,
        "tail": records.tail,
        "trim": jobs_and_offsets.trim,
    }
    return commands[arguments.command](arguments)


def _show_completion(_: argparse.Namespace) -> None:
    """Print the script. Bash completes other words as file names."""
    from spark_cas.programs.bulk_load import argument_parser

    parsers = {**command_line().commands, "load": argument_parser("spark-cas load")}
    cases = []
    for name, parser in parsers.items():
        actions = parser._actions  # noqa: SLF001 - argparse has no public list
        options = " ".join(option for action in actions for option in action.option_strings)
        cases.append(f'            {name}) words="{options}" ;;')
    print(_SCRIPT.format(commands=" ".join(parsers), cases="\n".join(cases)))
