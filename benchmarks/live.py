"""The cost of a live store over bare RocksDB, as ratios measured alternately in the same run. Prints JSON lines.

    python benchmarks/live.py            200k puts and gets, one million changelog rows to restore
    python benchmarks/live.py --quick    a tenth of it

The floor is ``rocksdict`` with its defaults (with its write-ahead log, as the store has its changelog) and the same
bytes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rocksdict import Options, Rdict

import statestore

ROUNDS = 9


def report(name: str, **fields: Any) -> None:
    print(json.dumps({"measure": name, **fields}), flush=True)


def bare(path: Path) -> Any:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    return Rdict(str(path), options)


def seconds(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def each(call: Callable[[Any], Any], keys: Sequence[Any]) -> list[int]:
    """Nanoseconds of single calls, one for each key."""
    clock, found = time.perf_counter_ns, []
    for key in keys:
        begin = clock()
        call(key)
        found.append(clock() - begin)
    return found


def measure_puts(
    store: Any, floor: Any, rows: int, name: str, put: Callable[[Any, str, int], None], suffix: bytes
) -> None:
    """Measure puts of 16-byte keys and 8-byte values, by turns; ``suffix`` is the part that the store adds to a key."""
    random = np.random.default_rng(1)
    ours, theirs = [], []
    for _ in range(ROUNDS):
        numbers = random.integers(0, 10**9, rows // ROUNDS).tolist()
        keys = [f"key-{number:012d}" for number in numbers]
        pack = struct.Struct("<q").pack
        encoded = [(key.encode() + suffix, b"\1" + pack(number)) for key, number in zip(keys, numbers, strict=True)]
        pairs = list(zip(keys, numbers, strict=True))

        def write_ours(pairs: list[tuple[str, int]] = pairs) -> None:
            for key, number in pairs:
                put(store, key, number)

        def write_theirs(encoded: list[tuple[bytes, bytes]] = encoded) -> None:
            write = floor.__setitem__
            for key, value in encoded:
                write(key, value)

        ours.append(seconds(write_ours) / len(pairs))
        theirs.append(seconds(write_theirs) / len(pairs))
    mine, other = statistics.median(ours), statistics.median(theirs)
    report(
        f"{name} put throughput / bare rocksdict put",
        ratio=round(other / mine, 3),
        goal="at least 0.6",
        ours_us=round(mine * 1e6, 2),
        theirs_us=round(other * 1e6, 2),
    )


def measure_gets(store: Any, floor: Any, rows: int) -> None:
    """Measure gets of existing keys in random order, timed one by one."""
    random = np.random.default_rng(2)
    present = [row.key for row in store.all()]
    ours: list[int] = []
    theirs: list[int] = []
    for _ in range(ROUNDS):
        keys = [present[number] for number in random.integers(0, len(present), rows // ROUNDS).tolist()]
        ours += each(store.get, keys)
        theirs += each(floor.get, [key.encode() for key in keys])
    empty = statistics.median(each(lambda key: None, present[:10_000]))
    mine, other = statistics.median(ours), statistics.median(theirs)
    report(
        "key_value get p50 / bare rocksdict get p50",
        ratio=round(mine / other, 3),
        goal="at most 1.5",
        ours_us=round(mine / 1000, 2),
        theirs_us=round(other / 1000, 2),
        of_that_the_empty_call_us=round(empty / 1000, 2),
    )


def measure_restore(catalog: statestore.Catalog, rows: int) -> None:
    """Measure reopening after the hot tier was lost: every changelog row is read and applied."""
    store = catalog.create_store("restored", kind="key_value", key={"k": "string"}, value={"v": "bigint"})
    for number in range(rows):
        store.put(f"key-{number % (rows // 2):012d}", number)
    store.close()
    shutil.rmtree(catalog.root / "restored" / "live")
    store = catalog.open_store("restored")
    taken = seconds(lambda: store.get("key-000000000000"))
    report("restore of changelog rows", rows_per_second=round(rows / taken), goal="at least 500000")
    store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    rows = 20_000 if parser.parse_args().quick else 200_000
    with tempfile.TemporaryDirectory() as folder:
        catalog = statestore.connect(Path(folder) / "warehouse")
        floor = bare(Path(folder) / "floor")
        columns: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}}
        with catalog.create_store("kv", kind="key_value", **columns) as store:
            measure_puts(store, floor, rows, "key_value", lambda store, key, number: store.put(key, number), b"")
            measure_gets(store, floor, rows)
        with catalog.create_store("w", kind="window", retention="1 hour", window_size=1000, **columns) as store:
            measure_puts(store, floor, rows, "window", lambda store, key, number: store.put(key, number, 0), bytes(12))
        measure_restore(catalog, rows * 5)


if __name__ == "__main__":
    main()
