"""A store whose files are forged under right checksums, each forgery read in every way: run as a process.

    python forged_stores.py FOLDER < NUMBERS

Reads the forgeries of these numbers, those of `forgeries`, and prints a line for each before it is read ("try 17"), one
for each read that raised what is none of our errors ("raw 17 …"), and "done" at the end. A crash is that of the last
line.
"""

from __future__ import annotations

import base64
import faulthandler
import shutil
import struct
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pyarrow as pa

import statestore
from statestore.formats.segments.regions import checksum_regions
from support.stores.log_entries import sealed_commit, verbose_commit

KEY = {"k": "string", "n": "bigint"}
VALUE = {
    "text": "string",
    "bytes": "binary",
    "price": "decimal(10,2)",
    "flag": "boolean",
    "parts": "array<string>",
    "by_name": "map<string,array<int>>",
    "inner": "struct<a:string,b:array<struct<c:int,d:string>>>",
}
STORE = "s"
WORDS = (0, 1, -1, 2**31 - 1, -(2**31))


class Forgery(NamedTuple):
    """Bytes of a data file of the newest commit that are replaced, at a position; ``name`` describes them."""

    name: str
    file: str
    at: int
    data: bytes


def _row(number: int) -> dict[str, Any]:
    some = None if number % 5 == 4 else number
    return {
        "k": f"key-{number % 7}",
        "n": number % 3,
        "text": None if some is None else f"text {'ü' * (number % 4)}",
        "bytes": b"\xff" * (number % 6),
        "price": Decimal(number) / 4,
        "flag": number % 2 == 0,
        "parts": None if some is None else [f"part {i}" for i in range(number % 4)],
        "by_name": [(f"name {i}", list(range(i))) for i in range(number % 3)],
        "inner": {"a": f"a{number}", "b": [{"c": i, "d": f"d{i}"} for i in range(number % 3)]},
    }


def make_store(folder: Path) -> None:
    """Three commits: segments with every kind of column, key indexes, closures, a tombstone, and a log checkpoint."""
    with (
        mock.patch("statestore.catalog.commits.publish_commit.LOG_CHECKPOINT_INTERVAL", 2),
        statestore.connect(folder).create_store(STORE, key=KEY, value=VALUE) as store,
    ):
        schema = pa.schema([*store.spec.key, *store.spec.value, pa.field("timestamp", pa.int64())])
        for commit in range(3):
            rows = {(r["k"], r["n"]): r for r in map(_row, range(commit, commit + 20))}
            records = [{**row, "timestamp": 1_000 * (commit + 1)} for row in rows.values()]
            store.put_all(pa.Table.from_pylist(records, schema))
            if commit == 2:
                store.delete(("key-0", 0), timestamp=5_000)
            store.commit()


def entry_path(folder: Path, version: int) -> Path:
    return folder / STORE / f"log/{version:020d}.json"


def references(entry: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The references to each data file in a log entry."""
    found: dict[str, list[dict[str, Any]]] = {}
    for meta in entry["added"]:
        found.setdefault(meta["file"]["name"], []).append(meta["file"])
        if meta["index"] is not None:
            found.setdefault(meta["index"]["name"], []).append(meta["index"])
    for piece in entry["closures"]:
        found.setdefault(piece["file"]["name"], []).append(piece["file"])
    return found


def forgeries(folder: Path, version: int = 3) -> list[Forgery]:
    """Every aligned word of the Arrow framing and of the columns' bytes of what a commit added, replaced in turn."""
    commit = verbose_commit(entry_path(folder, version))
    found: list[Forgery] = []
    for name, refs in references(commit).items():
        data = (folder / STORE / name).read_bytes()
        framing = {at for start, length in refs[0]["metadata_ranges"] for at in range(start, start + length)}
        for at in range(0, len(data) - 4, 4):
            (word,) = struct.unpack_from("<i", data, at)
            values = {*WORDS, word + 1, word + (1 << 30)} if at in framing else {-1, 2**31 - 1, word + 1000, word - 7}
            found += [
                Forgery(f"{name[-12:]} byte {at}: {word} becomes {value}", name, at, struct.pack("<I", value % 2**32))
                for value in sorted(values - {word})
            ]
    return found


def forge(folder: Path, forgery: Forgery, version: int = 3) -> None:
    """Put the forgery into the store, with the checksums of the commit made anew and no log checkpoint left."""
    path = folder / STORE / forgery.file
    data = bytearray(path.read_bytes())
    data[forgery.at : forgery.at + len(forgery.data)] = forgery.data
    path.unlink()
    path.write_bytes(data)
    place = entry_path(folder, version)
    commit = verbose_commit(place)
    for ref in references(commit)[forgery.file]:
        ref["checksums"] = checksum_regions(pa.py_buffer(bytes(data)))
    place.unlink()
    place.write_bytes(sealed_commit(commit))
    shutil.rmtree(folder / STORE / "log/_checkpoint", ignore_errors=True)


def reads(folder: Path) -> dict[str, Callable[[], object]]:
    """All the ways to read a store, by name."""

    def ours(ask: Callable[[Any], Any]) -> Callable[[], object]:
        def run() -> object:
            with statestore.connect(folder).open_store(STORE, read_only=True) as store:
                return ask(store)

        return run

    def sql(query: str) -> Callable[[], object]:
        return lambda: statestore.sql(str(folder), query).to_pylist()

    def get(store: Any) -> object:
        keys = [(f"key-{k}", n) for k in range(7) for n in range(3)]
        return [(store.get(key), store.get(key, as_of=1_500), store.get_versions(key)) for key in keys]

    def compact() -> object:
        with statestore.connect(folder).open_store(STORE) as store:
            store.compact(full=True)
            return whole(store.history())

    return {
        "scan": ours(lambda s: whole(s.scan())),
        "filters": ours(
            lambda s: [whole(s.scan(filter=f)) for f in (("text", ">", "text"), ("k", "=", "key-1"), ("n", "<", 2))]
        ),
        "as of": ours(lambda s: whole(s.scan(as_of=1_500, version=2))),
        "get": ours(get),
        "history": ours(lambda s: whole(s.history())),
        "history of a key": ours(lambda s: whole(s.history(("key-1", 1)))),
        "changes": ours(lambda s: whole(s.changes(start_version=0))),
        "diff": ours(lambda s: whole(s.diff(1, 3))),
        "sql": sql('SELECT max(text), max(upper(text)), sum(price), max(len(parts)), max("inner".b) FROM s'),
        "sql of rows": sql("SELECT * EXCLUDE (valid_from, valid_to) FROM s"),
        "sql of history": sql("SELECT k, n, parts, by_name FROM history('s') WHERE \"inner\".a < 'a5'"),
        "verify": lambda: statestore.verify(folder),
        "compact": compact,
    }


def whole(reader: pa.RecordBatchReader) -> list[object]:
    """Every row, as Python values; times as numbers, which may be any."""
    table = reader.read_all()
    table.validate(full=True)
    for place, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(place, field.name, table.column(place).cast(pa.int64()))
    found: list[object] = table.to_pylist()
    return found


@cache
def _packed(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def copied(folder: Path, target: Path) -> None:
    for name, data in _packed(folder).items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(data)


def _outcomes(folder: Path, number: int, put: Callable[[Path], None]) -> Iterator[str]:
    target = folder.parent / f"forged-{number}"
    copied(folder, target)
    put(target)
    for name, read in reads(target).items():
        try:
            read()
        except statestore.StateStoreError:
            pass
        except Exception as error:
            told = base64.b64encode(f"{name}: {type(error).__name__}: {error}"[:300].encode()).decode()
            yield f"raw {number} {told}"
    shutil.rmtree(target)


def main(folder: Path, numbers: list[int]) -> None:
    faulthandler.enable()
    found = forgeries(folder)
    for number in numbers:
        print("try", number, flush=True)
        for line in _outcomes(folder, number, lambda target: forge(target, found[number])):  # noqa: B023
            print(line, flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(word) for word in sys.stdin.read().split()])
