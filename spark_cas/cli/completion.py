"""`completion`: print a script with which bash completes the commands and options of `spark-cas`."""

import argparse

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


def show(_: argparse.Namespace) -> None:
    """Print the script. Bash completes other words as file names."""
    # Import here: these modules import this one, or need the log.
    from spark_cas.cli.commands import command_line
    from spark_cas.programs.bulk_load import argument_parser

    parsers = {**command_line().commands, "load": argument_parser("spark-cas load")}
    cases = "\n".join(f'            {name}) words="{_options_of(parser)}" ;;' for name, parser in parsers.items())
    print(_SCRIPT.format(commands=" ".join(parsers), cases=cases))


def _options_of(parser: argparse.ArgumentParser) -> str:
    actions = parser._actions  # noqa: SLF001 - argparse has no public list
    return " ".join(option for action in actions for option in action.option_strings)
