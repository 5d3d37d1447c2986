"""Reading snapshots of Flink into Arrow, through the public door. Prints JSON lines; run in benchmarks/engines.

    python flink_snapshots.py                two million keys
    python flink_snapshots.py --quick        a tenth of them
    python flink_snapshots.py --run FOLDER   the snapshots of a run of the job Customers, which are kept
    python flink_snapshots.py --states balance orders

A JDK and Maven make the data with Flink itself (``tests/engines/flink``): a canonical savepoint and an incremental
checkpoint of RocksDB. Flink's State Processor API then reads both, too. Without them two snapshots of the same form are
written here, and there is nothing to compare with.

Each read is a process on one core. ``process_s`` and ``process_cpu_s`` are its wall time and processor time, start
included, and ``flink_s`` and ``flink_cpu_s`` those of Flink; ``times_flink`` is the ratio of the processor times.
``first_s`` is the wall time of the first scan, which loads compiled loops; ``scan_s`` and ``rows_per_s`` are of the
fastest of the scans, the second by processor time. ``bytes`` are those that a scan reads, and ``ratio`` is its wall
time over that of reading as many without looking at them. ``keys_s`` is a scan of the keys alone, ``lookup_ms`` the
median of lookups of one key. ``peak_mib`` is the memory of the process at its peak, with Python and all libraries.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rocksdict import Options, Rdict, WriteBatch

import statestore

KEYS, REPETITIONS, LOOKUPS = 2_000_000, 5, 15
FIRST_KEY = 100_000_000
GROUPS = 128
STATES = ("balance", "customer", "orders", "limits", "name")
PROJECTS = Path(__file__).parents[2] / "tests" / "engines" / "flink"
OPENED = ("lang", "lang.invoke", "util", "util.concurrent.atomic", "time", "math", "net", "io", "nio")
BASE = "org.apache.flink.api.common.typeutils.base."
Entry = tuple[bytes, bytes]


def report(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


# Snapshots of real Flink


def class_path(folder: Path) -> str | None:
    """Compile the jobs and the reader; None where a tool or a jar is missing."""
    if any(shutil.which(tool) is None for tool in ("mvn", "javac", "java")):
        return None
    folder.mkdir()
    jars = folder / "jars.txt"
    ask = ["mvn", "-q", "-B", "-f", str(PROJECTS / "processor" / "pom.xml"), "dependency:build-classpath"]
    ask.append(f"-Dmdep.outputFile={jars}")
    if all(subprocess.run([*ask, *way], capture_output=True).returncode for way in (["--offline"], [])):
        return None
    path = os.pathsep.join((str(folder), jars.read_text().strip()))
    sources = [str(each) for name in ("jobs", "processor") for each in (PROJECTS / name).rglob("*.java")]
    subprocess.run(["javac", "-nowarn", "-proc:none", "-d", str(folder), "-cp", path, *sources], check=True)
    return path


def java(path: str, *arguments: str) -> str:
    opened = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in OPENED]
    command = ["java", "-Xmx3g", *opened, "-cp", path, *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout


def run_flink(path: str, folder: Path, keys: int) -> None:
    steps = ",".join([*[f"emit:{keys // 2},chk"] * 4, "canonical"])
    java(path, "RunJob", "Customers", "--dir", str(folder), "--steps", steps, "--keys", str(keys))


def snapshots(run: Path) -> dict[str, Path]:
    found = json.loads((run / "manifest.json").read_text())["snapshots"]
    last = {each["kind"]: run / each["path"] for each in found}
    return {"canonical": last["savepoint-canonical"], "incremental": last["checkpoint"]}


# Snapshots written here: operator ``customers`` with balance (double), name (string) and orders (a list of long)


def utf(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def snapshot(name: str, body: bytes = b"") -> bytes:
    return utf(name) + struct.pack(">i", 3) + body


def simple(name: str) -> bytes:
    return snapshot(f"{BASE}{name}Serializer${name}SerializerSnapshot")


def header() -> bytes:
    void = snapshot("org.apache.flink.runtime.state.VoidNamespaceSerializer$VoidNamespaceSerializerSnapshot")
    listed = snapshot(f"{BASE}ListSerializerSnapshot", struct.pack(">5i", 911108, 1, 1333245, 1, 1) + simple("Long"))
    states = {"balance": ("VALUE", simple("Double")), "name": ("VALUE", simple("String")), "orders": ("LIST", listed)}
    found = struct.pack(">i?i", 6, False, 2) + simple("Long") + struct.pack(">h", len(states))
    for name, (kind, value) in states.items():
        found += utf(name) + struct.pack(">ii", 0, 1) + utf("KEYED_STATE_TYPE") + utf(kind) + struct.pack(">i", 2)
        for role, serializer in (("VALUE_SERIALIZER", value), ("NAMESPACE_SERIALIZER", void)):
            found += utf(role) + struct.pack(">i", 2) + serializer
    return found


def metadata(handle: bytes) -> bytes:
    """One operator with one subtask, in version 3."""
    operator = bytes(15) + b"\1" + struct.pack(">ii", 1, GROUPS) + b"\0" + struct.pack(">4i", 1, 0, 0, 0)
    return struct.pack(">Iiqii", 0x4960672D, 3, 1, 0, 1) + operator + handle + b"\0" + struct.pack(">ii", 0, 0)


def group_of(key: int) -> int:
    """The key group of a long key: murmur of its hash code (``MathUtils.murmurHash``)."""
    code = (key ^ key >> 32) * 0xCC9E2D51 & 0xFFFFFFFF
    code = (code << 15 | code >> 17) * 0x1B873593 & 0xFFFFFFFF
    code = (code << 13 | code >> 19) * 5 + 0xE6546B64 & 0xFFFFFFFF
    code ^= 4
    code = (code ^ code >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    code = (code ^ code >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    code ^= code >> 16
    code -= code >> 31 << 32
    return abs(code) % GROUPS


def entries(keys: int) -> list[dict[str, list[Entry]]]:
    """Entries by key group and state, in the order of their keys."""
    groups: list[dict[str, list[Entry]]] = [{"balance": [], "name": [], "orders": []} for _ in range(GROUPS)]
    for number in range(keys):
        key = FIRST_KEY + number
        group = group_of(key)
        stored = struct.pack(">BqB", group, key, 0)
        name = f"customer {number}".encode()
        groups[group]["balance"].append((stored, struct.pack(">d", number / 2)))
        groups[group]["name"].append((stored, bytes((len(name) + 1,)) + name))
        groups[group]["orders"].append((stored, b",".join((struct.pack(">q", number),) * 2)))
    return groups


def write_canonical(folder: Path, groups: list[dict[str, list[Entry]]]) -> None:
    folder.mkdir(parents=True)
    offsets = []
    with (folder / "state").open("wb") as out:
        out.write(header())
        for states in groups:
            offsets.append(out.tell())
            for number, rows in enumerate(states.values()):
                out.write(struct.pack(">H", number))
                for place, (key, value) in enumerate(rows, 1):
                    key = bytes((key[0] | 0x80 * (place == len(rows)), *key[1:]))
                    out.write(struct.pack(">i", len(key)) + key + struct.pack(">i", len(value)) + value)
            out.write(b"\xff\xff")
        size = out.tell()
    handle = b"\x07" + struct.pack(f">ii{GROUPS}q", 0, GROUPS, *offsets) + b"\x06" + utf("state")
    (folder / "_metadata").write_bytes(metadata(handle + struct.pack(">q", size)))


def write_incremental(folder: Path, groups: list[dict[str, list[Entry]]]) -> None:
    """A checkpoint whose files RocksDB wrote in two flushes, half of the entries and then all of them."""
    database = Rdict(str(folder), Options(raw_mode=True))
    for name in groups[0]:
        table = database.create_column_family(name, Options(raw_mode=True))
        for step in (2, 1):
            for states in groups:
                batch = WriteBatch(raw_mode=True)
                batch.set_default_column_family(database.get_column_family_handle(name))
                for key, value in states[name][::step]:
                    batch.put(key, value)
                database.write(batch)
            table.flush()
        table.close()
    database.close()
    describe(folder)


def describe(folder: Path) -> None:
    """Write the ``_metadata`` of a checkpoint with the files of RocksDB in a folder."""
    (folder / "header").write_bytes(header())
    handle = b"\x05" + struct.pack(">q", 1) + utf("backend") + struct.pack(">ii", 0, GROUPS)
    handle += b"\x06" + utf("header") + struct.pack(">q", len(header())) + struct.pack(">i", 0)
    files = [*folder.glob("*.sst"), *folder.glob("MANIFEST-*"), folder / "CURRENT"]
    handle += struct.pack(">i", len(files))
    for each in files:
        handle += utf(each.name) + b"\x06" + utf(each.name) + struct.pack(">q", each.stat().st_size)
    (folder / "_metadata").write_bytes(metadata(handle))


def write_here(folder: Path, keys: int) -> dict[str, Path]:
    groups = entries(keys)
    found = {"canonical": folder / "canonical", "incremental": folder / "incremental"}
    write_canonical(found["canonical"], groups)
    write_incremental(found["incremental"], groups)
    return found


# Reads, each in a process of its own


def bytes_read() -> int:
    """The bytes that this process has asked files for, cached by the system or not."""
    return int(Path("/proc/self/io").read_text().split("rchar: ")[1].split()[0])


def count(batches: Iterable[Any]) -> int:
    return sum(batch.num_rows for batch in batches)


def read(place: str, name: str) -> None:
    """Read a state some times and print the measurements."""
    table = statestore.inspect(place).table(name)
    walls, processors, size, rows = [], [], 0, 0
    for _ in range(REPETITIONS):
        began, cpu, before = time.perf_counter(), time.process_time(), bytes_read()
        rows = count(table.scan())
        walls.append(time.perf_counter() - began)
        processors.append(time.process_time() - cpu)
        size = bytes_read() - before
    began = time.perf_counter()
    assert count(table.scan(columns=["key"])) == rows
    keys_s = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    lookups = []
    for number in range(LOOKUPS):
        began = time.perf_counter()
        count(table.scan(filter=("key", "=", FIRST_KEY + 7 * number)))
        lookups.append(time.perf_counter() - began)
    report(
        rows=rows,
        bytes=size,
        first_s=round(walls[0], 3),
        scan_s=round(min(walls), 3),
        rows_per_s=round(rows / min(processors)),
        mb_per_s=round(size / min(walls) / 1e6),
        keys_s=round(keys_s, 3),
        lookup_ms=round(statistics.median(lookups) * 1e3, 1),
        peak_mib=peak,
    )


def read_once(place: str, name: str) -> None:
    report(rows=count(statestore.inspect(place).table(name).scan()))


def in_process(*arguments: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, __file__, *arguments], check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measured(call: Callable[[], Any]) -> tuple[float, float, Any]:
    """Wall time and processor time of the processes that a call starts, and its result."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    result = call()
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, result


def raw_speed(place: Path) -> float:
    """Bytes a second of reading the large files of a snapshot, which are in the system's cache."""
    named = (place / "_metadata").read_bytes()
    folders = (place, place.parent / "shared")
    files = [each for folder in folders if folder.is_dir() for each in folder.iterdir() if each.name.encode() in named]
    best, size = float("inf"), 0
    for _ in range(REPETITIONS):
        began = time.perf_counter()
        size = 0
        for each in files:
            with each.open("rb", buffering=0) as stream:
                while piece := stream.read(4 << 20):
                    size += len(piece)
        best = min(best, time.perf_counter() - began)
    return size / best


def measure(kind: str, place: Path, path: str | None, chosen: Sequence[str]) -> None:
    speed = raw_speed(place)
    for name in sorted(statestore.inspect(place).tables()):
        state = name.rpartition(".")[2]
        if state not in chosen:
            continue
        found = in_process("--read", str(place), name)
        found["ratio"] = round(found["scan_s"] / (found["bytes"] / speed), 1)
        once = [measured(partial(in_process, "--read-once", str(place), name)) for _ in range(3)]
        wall, cpu = min(each[0] for each in once), min(each[1] for each in once)
        found |= {"process_s": round(wall, 2), "process_cpu_s": round(cpu, 2)}
        if path is not None:
            wall, flink_cpu, text = measured(partial(java, path, "ReadWithFlink", str(place), state))
            assert int(text.split()[1]) == found["rows"], (name, text, found)
            found |= {"flink_s": round(wall, 2), "flink_cpu_s": round(flink_cpu, 2)}
            found["times_flink"] = round(flink_cpu / cpu, 1)
        report(snapshot=kind, state=state, **found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the keys")
    parser.add_argument("--run", type=Path, help="the folder of a run of the job Customers, with its manifest.json")
    parser.add_argument("--states", nargs="+", default=STATES, help="these states alone")
    parser.add_argument("--without-flink", action="store_true", help="write the snapshots here")
    parser.add_argument("--read", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--read-once", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.read or given.read_once:
        read(*given.read) if given.read else read_once(*given.read_once)
        return
    keys = KEYS // 10 if given.quick else KEYS
    place = Path(tempfile.mkdtemp(prefix="flink-snapshots-"))
    try:
        path = None if given.without_flink else class_path(place / "classes")
        if given.run is None and path is not None:
            run_flink(path, place / "run", keys)
        run = given.run or place / "run"
        places = snapshots(run) if run.is_dir() else write_here(place / "written", keys)
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # and of the processes that it starts
        for kind, folder in places.items():
            measure(kind, folder, path, given.states)
    finally:
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
