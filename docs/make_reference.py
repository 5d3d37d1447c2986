"""Write docs/reference.md from the code: ``python docs/make_reference.py``. A test compares the two."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import typer

import statestore
from statestore.catalog.stores import kind_options
from statestore.catalog.stores.store_handle import StoreHandle
from statestore.connector.cli.main import app
from statestore.connector.options import OPTIONS, options_of_engines
from statestore.formats.edit_settings import settings_of_engines
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CommitUnknownError, StateStoreError
from statestore.formats.places.regular_files import MAPPING
from statestore.formats.rocksdb.scan import READER

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reference.md"
PACKAGES = ("connector", "catalog", "formats")
RAISED = re.compile(r"\b(\w+)\(\s*ErrorCode\.([A-Z_]+)")
ACTIONS = {
    "NotFoundError": "name something that exists",
    "ConflictError": "read again, then retry",
    "CorruptError": "restore the file from a copy",
    "InvalidInputError": "correct the call",
    "UnsupportedError": "use another type, kind or engine",
    "ReadOnlyError": "write somewhere else",
    "StorageError": "have the disk work again (space, open files, access), then repeat the call",
    "CommitUnknownError": "repeat the call on the same handle, or ask `was_committed`",
}
HEAD = """# Reference

Made from the code by `python docs/make_reference.py`; do not edit. [The Python API](api.md) has all docstrings, and the
columns of results.

Times in Python are epoch milliseconds, aware datetimes or, as in Spark options, in SQL and on the command line,
ISO-8601 with a zone or epoch milliseconds as text. Durations are milliseconds, `timedelta` or text like `"30 days"`.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD, *_options(), *_settings(), *_store_options(), *_environment(), *_python(), *_commands(), *_errors()]
    return "\n".join(parts).rstrip() + "\n"


def _options() -> Iterator[str]:
    yield "\n## Options of reads and writes\n"
    yield (
        "One word in three spellings. Spark's ignores case; `read` and `write` are batches, `readStream` and "
        "`writeStream` streams. Options of an engine's state are also arguments of `attach`, `sql` and "
        "`write_report`, and flags of every command that reads; there, an option of a change feed implies "
        "`readChangeFeed`.\n"
    )
    rows = (
        (_code(o.name), " ".join(o.uses), _code(o.python), _code(o.command), o.kind, o.meaning)
        for o in sorted([*OPTIONS, *options_of_engines()], key=lambda o: o.name.lower())
    )
    yield table(("Spark", "in", "Python", "command line", "is", "meaning"), rows)


def _settings() -> Iterator[str]:
    yield "\n## Settings of edits\n"
    yield "`statestore.edit(source, target, settings={…})` and `statestore edit`; the meaning names the engines.\n"
    rows = (
        (_code(name), _code(f"--{name.replace('_', '-')}"), setting.kind, setting.meaning)
        for name, setting in settings_of_engines(installed=False).items()
    )
    yield table(("Python", "command line", "is", "meaning"), rows)


def _environment() -> Iterator[str]:
    yield "\n## Environment variables\n"
    rows = [
        (
            _code(MAPPING),
            "`on` (default), `off`",
            "whether data files are mapped; `off` reads them into memory "
            "([why](operate-a-store.md#mapped-files)). Spark: also `spark.executorEnv.STATESTORE_MMAP`",
        ),
        (_code(READER), "`scanner`, `rocksdict`", "force one reader of RocksDB table files; default: what is fastest"),
    ]
    yield table(("variable", "values", "meaning"), rows)


def _store_options() -> Iterator[str]:
    yield "\n## Options of stores\n"
    yield "`catalog.create_store(name, kind, key=…, value=…, …)`; `rebuild` takes the same.\n"
    kinds = kind_options.OPTIONS
    for name, meaning in kind_options.MEANINGS.items():
        takers = [
            f"{kind} (required)" if name in kind_options.REQUIRED.get(kind, ()) else kind
            for kind, names in kinds.items()
            if name in names
        ]
        yield f"- `{name}`: {meaning}. {'Kinds: ' + ', '.join(takers) if takers else 'All kinds'}."


def _python() -> Iterator[str]:
    yield "\n## Python\n"
    things = {name: getattr(statestore, name) for name in statestore.__all__}
    functions = {n: t for n, t in things.items() if not inspect.isclass(t)}
    classes = {n: t for n, t in things.items() if inspect.isclass(t) and not issubclass(t, Exception)}
    rows = ((_code(_call(f"statestore.{name}", thing)), _first_line(thing)) for name, thing in functions.items())
    yield table(("call", "what it does"), rows)
    stores = [_members(thing) for thing in classes.values() if issubclass(thing, StoreHandle)]
    everywhere = {row for row in stores[0] if all(row in members for members in stores)}
    yield "\n### Every store of rows and, where it reads, every table\n"
    yield table(("member", "what it does"), [row for row in stores[0] if row in everywhere])
    for name, thing in classes.items():
        yield f"\n### {name}\n\n{_first_line(thing)}\n"
        yield table(("member", "what it does"), [row for row in _members(thing) if row not in everywhere])
    for module in (statestore.joins, statestore.kafka, statestore.tracked):
        yield from _module(module)
    yield f"\n## {statestore.engines.__name__}\n\n{_first_line(statestore.engines)} See [engines.md](engines.md).\n"
    things = {name: getattr(statestore.engines, name) for name in statestore.engines.__all__}
    yield table(("name", "what it is"), ((_code(name), _first_line(thing)) for name, thing in things.items()))


def _module(module: ModuleType) -> Iterator[str]:
    """The classes and functions of a module of the public face."""
    yield f"\n## {module.__name__}\n\n{_first_line(module)}\n"
    things = {name: getattr(module, name) for name in module.__all__}
    functions = {name: thing for name, thing in things.items() if not inspect.isclass(thing)}
    yield table(("call", "what it does"), ((_code(_call(n, t)), _first_line(t)) for n, t in functions.items()))
    for name, thing in things.items():
        if inspect.isclass(thing):
            yield f"\n### {name}\n\n{_first_line(thing)}\n"
            yield table(("member", "what it does"), _members(thing))


def _members(thing: type) -> list[tuple[str, str]]:
    """(call, first sentence) of each of `members`."""
    return [(_code(_call(name, getattr(thing, name))), _first_line(getattr(thing, name))) for name in members(thing)]


def members(thing: type) -> list[str]:
    """Return the public members, in order, that the class or one of its own bases documents."""
    builtins = [base for base in thing.__mro__ if base in (tuple, int, str, object)]
    inherited = {name for base in builtins for name in dir(base)}
    return [
        name
        for name in sorted(n for n in dir(thing) if not n.startswith("_") and n not in inherited)
        if not re.match(
            r"$|Alias for field|int\(\[x\]\)|str\(object=|Built-in immutable", _first_line(getattr(thing, name))
        )
    ]


def _call(name: str, member: Any) -> str:
    """Return a call as users write it: ``get(key, as_of=None)``; a property has no brackets."""
    if not callable(member):
        return name
    parameters = list(inspect.signature(member).parameters.values())
    parts: list[str] = []
    for p in parameters[1:] if parameters and parameters[0].name == "self" else parameters:
        if p.kind is p.KEYWORD_ONLY and "*" not in parts and not any(part.startswith("*") for part in parts):
            parts.append("*")
        stars = "*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else ""
        shown = "…" if callable(p.default) else repr(p.default)
        default = "" if p.default is p.empty else f"={shown}"
        parts.append(f"{stars}{p.name}{default}")
    return f"{name}({', '.join(parts)})"


def _commands() -> Iterator[str]:
    yield "\n## Command line\n"
    yield "Data goes to stdout, messages to stderr; exit status 0 good, 1 failed, 2 wrong usage, 3 an alert.\n"
    group: Any = typer.main.get_command(app)
    for name, command in group.commands.items():
        usage = " ".join(part for parameter in command.params for part in _usage(parameter))
        yield f"\n### statestore {name}\n\n`statestore {name} {usage}`\n\n{' '.join((command.help or '').split())}\n"
        options = (
            (_code(max(p.opts, key=len)), " ".join((getattr(p, "help", "") or "").split()))
            for p in command.params
            if p.param_type_name == "option" and getattr(p, "help", "") and not getattr(p, "hidden", False)
        )
        yield table(("option", "meaning"), options)


def _errors() -> Iterator[str]:
    yield "\n## Errors\n"
    yield (
        "All derive from `statestore.StateStoreError`. Each has a `message` and a `code`, which is one of those below "
        'and compares equal to its text: `error.code == "STORE_LOCKED"`. Problems that `verify` reports have such a '
        "code, too.\n"
    )
    names = [kind.__name__ for kind in (*StateStoreError.__subclasses__(), CommitUnknownError)]
    yield table(("error", "what to do"), ((_code(name), ACTIONS[name]) for name in names if name in ACTIONS))
    classes = _classes_of_codes()
    rows = ((_code(code), ", ".join(map(_code, classes[code])), text) for code, text in _texts_of_codes())
    yield table(("code", "error", "what is wrong, and what to do"), rows)


def _classes_of_codes() -> dict[str, list[str]]:
    """The errors with which each code is raised."""
    indirect = {
        "ErrorPath": "InvalidInputError",
        "StorageExistsError": "StateStoreError",
        "UnsettledError": "StorageError",
    }
    found: dict[str, list[str]] = {code: [] for code in ErrorCode}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for name, code in RAISED.findall(path.read_text("utf-8")):
                kind = indirect.get(name, name)
                if kind not in found[code] and kind in (*ACTIONS, "StateStoreError"):
                    found[code].append(kind)
    return found


def _texts_of_codes() -> Iterator[tuple[str, str]]:
    """The text below each code in the source of `ErrorCode`."""
    (body,) = [node.body for node in ast.parse(inspect.getsource(ErrorCode)).body if isinstance(node, ast.ClassDef)]
    for code, text in pairwise(body):
        if isinstance(code, ast.Assign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            yield ast.unparse(code.targets[0]), str(text.value.value)


def _usage(parameter: Any) -> Sequence[str]:
    if parameter.param_type_name == "argument":
        name = str(parameter.name).upper()
        return (name if parameter.required else f"[{name}]",)
    return ()


def _first_line(thing: Any) -> str:
    """The first sentence of the docstring, in one line."""
    text = " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())
    return re.split(r"(?<=[.;])\s", text)[0].rstrip(";")


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows]
    if not lines:
        return ""
    return "\n".join(f"| {line} |" for line in (" | ".join(header), " | ".join("---" for _ in header), *lines)) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
