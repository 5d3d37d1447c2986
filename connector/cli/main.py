"""The commands of the program. They pass data to `terminal`.

The module of a command is loaded when the command is named, and those of all for the list of them.
"""

from __future__ import annotations

import functools
import itertools
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, MutableMapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from statestore.connector.cli import arguments as args
from statestore.connector.cli.arguments import SETTINGS, engine_flags, epilog, setting_flags, with_engine_flags
from statestore.connector.version import show_version
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError

# Commands that take a number below zero as an argument, and help pages on which no word is cut: the first sentence of
# each command whole, and no option broken at a hyphen.

WIDTH = 76  # of a terminal of 80 columns, less the indentation
OTHER_WORDS = {
    "help": "--help",
    "delete": "drop",
    "insert": "put",
    "list": "inspect",
    "log": "versions",
    "ls": "inspect",
    "optimize": "compact",
    "query": "sql",
    "rm": "drop",
    "select": "sql",
    "set": "put",
    "show": "scan",
    "status": "inspect",
    "tables": "inspect",
    "tail": "watch",
    "version": "--version",
}
"""Words of git, SQL and shells, and the commands that do as much."""


class _Place(NamedTuple):
    """The place of a command's function. ``reads``: it has the options of engines; ``again``: it runs again
    where a running engine has replaced what it reads; ``edits``: it has the settings that engines offer for edits."""

    module: str
    function: str
    reads: bool = False
    again: bool = False
    edits: bool = False


_ROOM = "statestore.connector.cli"
_READ, _DIFFER, _WRITE, _UPKEEP = (f"{_ROOM}.{name}_commands" for name in ("read", "difference", "write", "upkeep"))
PLACES = {
    **{name: _Place(_READ, name, True, True) for name in ("inspect", "describe", "sql", "shell", "get", "history")},
    **{name: _Place(_READ, name, True, True) for name in ("scan", "versions", "report")},
    **{name: _Place(_DIFFER, name, True, True) for name in ("diff", "compare", "changes")},
    "watch": _Place(f"{_ROOM}.watch_commands", "watch", True, True),
    "explore": _Place(_READ, "explore", True, True),
    **{name: _Place(_WRITE, name) for name in ("create", "put", "drop", "load")},
    "verify": _Place(_UPKEEP, "verify", True),
    **{name: _Place(_UPKEEP, name) for name in ("compact", "expire", "vacuum", "hold")},
    "export": _Place(_WRITE, "export", True),
    "import": _Place(_WRITE, "import_store", True),
    "edit": _Place(f"{_ROOM}.edit_commands", "edit", True, edits=True),
    "capture": _Place(f"{_ROOM}.capture_commands", "capture", True),
}
"""The commands in the order of their list."""


class _Commands(MutableMapping[str, Any]):
    """The commands by name, each made when it is asked for. ``made`` are those that are."""

    def __init__(self, made: dict[str, Any]) -> None:
        self.made = made

    def __getitem__(self, name: str) -> Any:
        if name not in self.made and name in PLACES:
            self.made[name] = _made(name, PLACES[name])
        return self.made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self.made[name] = command

    def __delitem__(self, name: str) -> None:
        del self.made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*PLACES, *self.made)))

    def __len__(self) -> int:
        return len({*PLACES, *self.made})


def _taken_as_given(parameters: list[Any]) -> list[Any]:
    """Return parameters of a command that take values which have the right type as they are.

    typer has pydantic convert every value, also None and texts. To load pydantic takes a sixth of a short command.
    """
    for parameter in parameters:
        if not isinstance(parameter.process_value, functools.partial):
            parameter.process_value = functools.partial(_processed, parameter, parameter.process_value)
    return parameters


def _processed(parameter: Any, process: Callable[[Any, Any], Any], ctx: Any, value: Any) -> Any:
    """Return what a parameter makes of a value: what ``process`` returns, which need not be called for all."""
    kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)  # of older releases: not known
    is_single = parameter.nargs == 1 and not getattr(parameter, "multiple", False)
    is_absent = value is None and not parameter.required
    if is_single and (is_absent or type(value) is kind) and kind in (str, int, bool):
        return value if parameter.callback is None else parameter.callback(ctx, parameter, value)
    return process(ctx, value)


class _Group(TyperGroup):
    """The commands of the program, each with its first sentence in the list."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands: Any = _Commands(dict(self.commands))

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options of the program."""
        return _taken_as_given(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; name the one that does what a word of other programs asks for."""
        known = OTHER_WORDS.get(args[0])
        if known is not None and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {known!r}?")
        name, command, words = super().resolve_command(ctx, args)
        place = PLACES.get(args[0])
        if place is not None and place.reads and _has_other_options(command, words):
            command = _made(args[0], place, installed=True)
        return name, command, words

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, each.get_short_help_str(1000)) for name, each in found if each is not None and not each.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _has_other_options(command: Any, words: list[str]) -> bool:
    """Return whether words after a command are options that it has not: those of engines of installed packages, or
    ``--help``, which names them. To look for these engines takes longer than many a command."""
    known = {spelling for option in command.params for spelling in (*option.opts, *option.secondary_opts)}
    given = itertools.takewhile("--".__ne__, words)
    return any(word == "-h" or (word[:2] == "--" and word.partition("=")[0] not in known) for word in given)


BELOW_ZERO = re.compile(r"-(\.?[0-9]|(inf|infinity|nan)$)", re.IGNORECASE)
"""The beginning of a number, or of a duration like ``-1 day, 23:00:00``, as keys and values are printed."""


class _Command(TyperCommand):
    """A command that takes what begins like a number below zero as an argument. Its last paragraph lists options."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the arguments and options."""
        return _taken_as_given(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words after the command; no option begins like a number."""
        with_value = {
            spelling
            for option in self.get_params(ctx)
            if option.param_type_name == "option" and not getattr(option, "is_flag", False)
            for spelling in (*option.opts, *option.secondary_opts)
        }
        left = iter(args)
        options: list[str] = []
        arguments: list[str] = []
        for word in left:
            if word == "--":
                arguments += left
            elif word in with_value:
                options += [word, *itertools.islice(left, 1)]
            elif word.startswith("-") and word != "-" and not BELOW_ZERO.match(word):
                options.append(word)
            else:
                arguments.append(word)
        is_needed = any(map(BELOW_ZERO.match, arguments))
        rest: list[str] = super().parse_args(ctx, [*options, "--", *arguments] if is_needed else args)
        return rest

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and options, and behind them the flags for settings of edits."""
        found = [(each, each.get_help_record(ctx)) for each in self.get_params(ctx)]
        parts: dict[str, list[Any]] = {"Arguments": [], "Options": [], SETTINGS: []}
        for each, record in found:
            if record is not None:
                panel = getattr(each, "rich_help_panel", None) or "Options"
                parts.setdefault("Arguments" if each.param_type_name == "argument" else panel, []).append(record)
        for title, records in parts.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the last paragraph, broken at blanks only."""
        if self.epilog:
            formatter.write_paragraph()
            for line in textwrap.wrap(self.epilog, WIDTH, break_on_hyphens=False):
                formatter.write(f"  {line}\n")


HELP = """Time-travel tables for stream-processor state.

Begin with: statestore inspect PATH. The path is that of a Spark checkpoint, a Flink savepoint, a Kafka Streams
directory, or a warehouse of your own, which statestore create makes."""

app = typer.Typer(
    name="statestore",
    cls=_Group,
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
        from statestore.formats.replaced_versions import again

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


def _made(name: str, place: _Place, *, installed: bool = False) -> Any:
    """Return a command of the program, whose module is loaded. ``installed``: with options of installed engines."""
    function = getattr(import_module(place.module), place.function)
    _leave_pandas_out()
    function = _asked_again(function) if place.again else function
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    if place.reads:
        options = engine_flags(installed=installed)
        settings = setting_flags(installed=installed) if place.edits else {}
        command = with_engine_flags(function, options, settings)
        alone.command(name, cls=_Command, epilog=epilog(options))(command)
    else:
        alone.command(name, cls=_Command)(function)
    return typer.main.get_command(alone)


def _leave_pandas_out() -> None:
    """Let pyarrow look for pandas now, and find none.

    With the first value that becomes Arrow it loads pandas, which takes a third of a second, to know values of pandas.
    Commands have none. What asks for pandas by name, as ``to_pandas`` does, still loads it.
    """
    arrow: Any = sys.modules.get("pyarrow")
    if arrow is not None and "pandas" not in sys.modules:
        sys.meta_path.insert(0, _NoPandas)
        try:
            arrow.array([])
        finally:
            sys.meta_path.remove(_NoPandas)


class _NoPandas:
    """A finder by which there is no pandas."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def _show_version(asked: bool) -> None:
    if asked:
        show_version()
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


# Messages of errors in the words of the command line: ``as_of=`` and ``batchId`` become ``--as-of`` and
# ``--batch-id``.

FLAGS = {
    "allow_external_access": "--allow-external-access",
    "as_of": "--as-of",
    "batched_changelog": "--batched-changelog",
    "before": "--before",
    "columns": "--columns",
    "allow_late": "--allow-late",
    "as_batch": "--as-batch",
    "dry_run": "--dry-run",
    "end": "--to",
    "end_time": "--to",
    "end_version": "--to",
    "filter": "--where",
    "full": "--full",
    "history_retention": "--history-retention",
    "key_groups": "--key-groups",
    "num_segments": "--num-segments",
    "older_than": "--older-than",
    "retain_duplicates": "--retain-duplicates",
    "retention": "--retention",
    "segment_interval": "--segment-interval",
    "serde": "--serde",
    "start": "--from",
    "start_time": "--from",
    "start_version": "--from",
    "time_ordered": "--time-ordered",
    "version": "--version",
    "window_after": "--window-after",
    "window_before": "--window-before",
    "window_size": "--window-size",
}
PHRASES = {
    "milliseconds as an int (not negative), a timedelta of whole ones, or a text with units": (
        "milliseconds (not negative), or a text with units"
    ),
    "open it with open_store, or with store(…, if_missing='create'), which makes it only where it is missing, or "
    "drop_store it first": "choose another name, or remove it first with statestore drop",
    "create it with statestore.connect(…).create_store": "create it with statestore create",
    "create it with create_store or store(…, if_missing='create')": "create it with statestore create",
    "an int of epoch milliseconds, an aware datetime, or a text like": "epoch milliseconds, or a text like",
    "a warehouse made with statestore.connect,": "a warehouse, which statestore create makes,",
    "value: a keyed store": "--value: a keyed store",
    "True or False": "true or false",
}
"""Words that only Python has, and those of the command line."""
_CALL = re.compile(r"\b(scan|expire|vacuum|compact|diff|changes|history|get)\(([a-z_]+)=([^()]*)\)")
_ARGUMENT = re.compile(r"(?<![\w'\"/?&.-])([a-z_]+)=(True|None)?(?=([^\s,;)]?))")
_LIST = re.compile(r"(?:(?<=has the options )|(?<=; did you mean ))[a-z_]+(?:(?:, | and )[a-z_]+)*")
_SUBJECT = re.compile(r"(^|\] |, )([a-z]\w+)(?= is | selects )|(\bneeds |\boption )([a-z]\w+)(?= is |;| selects )")


def in_words_of_options(message: str) -> str:
    """Return the message with the names of arguments in Python and of options in Spark replaced by those of options.

    A name elsewhere in the message may be a column or a store, and stays.
    """
    flags = {**FLAGS, **_engine_flags()}

    def subject(found: re.Match[str]) -> str:
        before, name = found[1] if found[3] is None else found[3], found[2] or found[4]
        flag = flags.get(name)
        return found[0] if flag is None else f"{before.removesuffix('option ')}{flag}"

    for phrase, other in PHRASES.items():
        message = message.replace(phrase, other)
    message = _LIST.sub(lambda found: re.sub(r"[a-z_]+", lambda name: flags.get(name[0], name[0]), found[0]), message)
    message = _CALL.sub(lambda found: f"{found[1]} {found[2]}={found[3]}", message)
    return _SUBJECT.sub(subject, _ARGUMENT.sub(_flag_of_argument, message))


def _flag_of_argument(found: re.Match[str]) -> str:
    flag = FLAGS.get(found[1])
    if flag is None:
        return found[0]
    return flag if found[2] or not found[3] else f"{flag} "


def _engine_flags() -> dict[str, str]:
    from statestore.formats.edit_settings import settings_of_engines
    from statestore.formats.engine_arguments import arguments_of_engines, flag

    found = [*arguments_of_engines().values(), *settings_of_engines().values()]
    return {option.name: flag(option.name) for option in found}
