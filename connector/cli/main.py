"""The command line. Commands pass data to `output`. Exit codes: 0 success, 1 failure, 2 wrong usage, 130
interrupted."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from statestore.connector.cli.grammar import arguments as args
from statestore.connector.cli.grammar.engine_flags import epilog, with_engine_flags
from statestore.connector.cli.grammar.help_pages import Command, Group
from statestore.connector.cli.reading import difference_commands, read_commands
from statestore.connector.cli.reading.exploring import explore
from statestore.connector.cli.reading.watch import watch
from statestore.connector.cli.upkeep import upkeep_commands
from statestore.connector.cli.writing import file_commands, store_commands
from statestore.connector.cli.writing.import_command import import_store
from statestore.connector.terminal.option_words import in_words_of_options
from statestore.connector.terminal.output import say_error, say_notice
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, StateStoreError
from statestore.formats.notices import notices_to
from statestore.formats.replaced_versions import again

HELP = """Time-travel tables for stream-processor state.

Begin with: statestore inspect PATH. The path is that of a Spark checkpoint, a Flink savepoint, a Kafka Streams
directory, or a warehouse of your own, which statestore create makes."""

app = typer.Typer(
    name="statestore",
    cls=Group,
    help=HELP,
    no_args_is_help=True,
    context_settings={"help_option_names": ["--help", "-h"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class _Output:
    """The standard output; ``used``: something may have been written to it."""

    def __init__(self, output: Any) -> None:
        self.output, self.used = output, False

    def write(self, text: str) -> int:
        self.used = True
        return int(self.output.write(text))

    def __getattr__(self, name: str) -> Any:
        self.used = self.used or name in ("buffer", "writelines")
        return getattr(self.output, name)


def _asked_again(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that reads, and that runs again where a running engine has replaced what it reads before
    anything was printed."""

    @functools.wraps(command)
    def run(*given: Any, **named: Any) -> None:
        output = _Output(sys.stdout)
        lost: list[NotFoundError] = []

        def once() -> None:
            try:
                command(*given, **named)
            except NotFoundError as error:
                if not output.used:
                    raise
                lost.append(error)

        sys.stdout = output
        try:
            again(once)
        finally:
            sys.stdout = output.output
        if lost:
            raise lost[0]

    return run


for command in (*read_commands.COMMANDS, *difference_commands.COMMANDS, watch, explore):
    app.command(cls=Command, epilog=epilog())(with_engine_flags(_asked_again(command)))
for writing in (*store_commands.COMMANDS, file_commands.load, *upkeep_commands.COMMANDS):
    app.command(cls=Command)(writing)
app.command(cls=Command, epilog=epilog())(with_engine_flags(file_commands.export))
app.command(name="import", cls=Command, epilog=epilog())(with_engine_flags(import_store))


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"statestore {version('statestore')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Print the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Take the options of the program."""


@app.command()
def demo(
    engine: Annotated[str, typer.Option("--engine", help="spark, or duckdb (needs no Java).")] = "spark",
    out: Annotated[Path, typer.Option("--out", help="Folder for the warehouse and the plot.")] = Path(
        "statestore-demo"
    ),
    as_json: args.Json = False,
) -> None:
    """Join flights of 2013 with the weather known at their departure: why time travel matters."""
    from statestore.connector.demo.run import run_demo

    if engine not in ("spark", "duckdb"):
        raise InvalidInputError(ErrorCode.INVALID_OPTION, f"--engine {engine}: expected spark or duckdb")
    run_demo(engine, out, as_json=as_json)


def main() -> None:
    """Run the command line; errors of the tree and OSErrors become one line on stderr."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell, as in <&-
            setattr(sys, name, Path(os.devnull).open("r" if name == "stdin" else "w"))  # noqa: SIM115
    try:
        with notices_to(say_notice, all_threads=True):
            app(prog_name="statestore")
    except StateStoreError as error:
        say_error(in_words_of_options(str(error)))
        sys.exit(2 if isinstance(error, InvalidInputError) else 1)
    except BrokenPipeError:
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except UnicodeEncodeError as error:  # by stdout; a query or name that is not valid Unicode is an error of the tree
        character = error.object[error.start]
        say_error(f"{character!a} cannot be printed in {error.encoding}; set PYTHONIOENCODING=utf-8")
        sys.exit(1)
    except OSError as error:  # a folder without read or write permission, or a full disk
        say_error(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))
        sys.exit(1)
