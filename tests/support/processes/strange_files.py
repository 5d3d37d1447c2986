"""Stores in which something else has the place of a file, used in every way: run as a process.

    python strange_files.py FOLDER KIND

Prints a line before each trial, "raw …" for an error outside the tree, and "done". A trial that hangs is in the last
line.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import statestore

COLUMNS: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}}


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:  # by a short name, which is all that a socket can have
        here = Path.cwd()
        os.chdir(path.parent)
        made.bind(path.name)
        os.chdir(here)


KINDS: dict[str, Callable[[Path], None]] = {
    "FIFO": _fifo,
    "device": _device,
    "directory": Path.mkdir,
    "loop": _loop,
    "socket": _socket,
}


def make(folder: Path) -> None:
    catalog = statestore.connect(folder)
    with catalog.create_store("v", **COLUMNS) as store:
        for commit in range(66):
            store.put(f"k{commit % 3}", commit, timestamp=1_000 * commit)
            store.commit()
        store.put("waiting", 1, timestamp=100_000)
    with catalog.create_store("live", kind="key_value", **COLUMNS) as live:
        live.put("a", 1)
        live.commit()
        live.put("b", 2)
    with catalog.create_store("keyed", kind="keyed", key={"k": "string"}, key_groups=4) as keyed:
        for kind in ("full", "incremental"):
            with keyed.backend(version=0, directory=folder / "local") as backend:
                counts = backend.value_state("counts", "bigint")
                for number in range(5):
                    backend.set_current_key(f"k{number}")
                    counts.update(number)
                keyed.commit([backend.snapshot(kind).result()])


def uses(folder: Path, name: str) -> dict[str, Callable[[], object]]:
    catalog = statestore.connect(folder)

    def read() -> object:
        with catalog.open_store(name, read_only=True) as store:
            return store.scan().read_all(), store.history().read_all(), store.get("a"), store.versions()

    def written() -> None:
        with catalog.open_store(name) as store:
            store.put("new", 1, timestamp=200_000) if name == "v" else store.put("new", 1)
            store.commit()
            store.vacuum(older_than=0)

    def keyed() -> None:
        for version in (None, 1):
            with (
                catalog.open_store("keyed") as store,
                store.backend(version=version, directory=folder.parent / "local") as backend,
            ):
                backend.value_state("counts", "bigint")
                store.commit([backend.snapshot().result()])

    def listed() -> object:
        found = statestore.inspect(folder)
        return [found.table(table).scan().read_all() for table in found.tables() if table.partition(".")[0] == name]

    return {
        "read": keyed if name == "keyed" else read,
        "list": listed,
        "inspect": lambda: statestore.inspect(folder / name).tables(),
        "attach": lambda: statestore.attach(str(folder)).close(),
        "sql": lambda: statestore.sql(str(folder), f'SELECT count(*) FROM "{name}"'),
        "verify": lambda: statestore.verify(folder),
        "stores": catalog.stores,
        "write": keyed if name == "keyed" else written,
    }


def main(folder: Path, kind: str) -> None:
    base = folder / "base"
    make(base)
    shutil.rmtree(base / "local", ignore_errors=True)
    files = sorted(str(p.relative_to(base)) for p in base.rglob("*") if p.is_file())
    kept = [f for f in files if "/log/" not in f or f.endswith(("000.json", "064.arrow", "066.json", "001.json"))]
    kept += ["v/log/00000000000000000067.json", "keyed/log/00000000000000000002.json"]
    seen: dict[str, int] = {}
    for number, file in enumerate(kept):
        place = str(Path(file).parent) + Path(file).suffix
        seen[place] = seen.get(place, 0) + 1
        if seen[place] > 2 or "changelog" in file:
            continue
        target = folder / str(number)
        shutil.copytree(base, target)
        path = target / file
        path.unlink(missing_ok=True)
        KINDS[kind](path)
        for use, run in uses(target, file.partition("/")[0]).items():
            print("try", kind, file, use, flush=True)
            try:
                run()
            except statestore.StateStoreError:
                pass
            except Exception as error:
                print("raw", kind, file, use, type(error).__name__, str(error)[:200], flush=True)
        shutil.rmtree(target)
    print("done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
