"""Random damage to files of Flink and Kafka Streams: a right answer, or an error of this package, never another one.

What a checksum covers never gives wrong rows that verify does not tell.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import pytest
from support.flink.fixtures import copied, manifest
from support.kafka.applications import unpacked
from support.parameters import SHARE

import statestore
from statestore.formats.errors import StateStoreError

pytestmark = pytest.mark.filterwarnings("ignore::statestore.StateStoreWarning")

TRIALS = int(os.environ.get("STATESTORE_DAMAGES", "40" if SHARE == 1 else "12"))
"""Damages of each directory."""

TABLE_END = bytes.fromhex("f7cff485b741e288")  # the magic number of RocksDB
Damage = Callable[[bytes, random.Random], bytes]


def flip(content: bytes, chance: random.Random) -> bytes:
    changed, place = bytearray(content), chance.randrange(len(content))
    changed[place] ^= 1 << chance.randrange(8)
    return bytes(changed)


def put(content: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(content))
    return content[:place] + bytes([chance.choice([0, 127, 128, 255])]) + content[place + 1 :]


def zero(content: bytes, chance: random.Random) -> bytes:
    begin = chance.randrange(len(content))
    end = min(len(content), begin + chance.choice([4, 16, 512, 4096]))
    return content[:begin] + bytes(end - begin) + content[end:]


def cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.choice([0, chance.randrange(len(content)), len(content) - 1])]


def extend(content: bytes, chance: random.Random) -> bytes:
    return content + chance.choice([b"\0", bytes(4096), content[-100:], content])


def drop(content: bytes, chance: random.Random) -> bytes:
    begin = chance.randrange(len(content))
    return content[:begin] + content[begin + chance.choice([1, 4, 8, 100]) :]


def repeat(content: bytes, chance: random.Random) -> bytes:
    begin = chance.randrange(len(content))
    return content[: begin + chance.choice([1, 4, 8, 100])] + content[begin:]


DAMAGES: tuple[Damage, ...] = (flip, flip, put, zero, cut, extend, drop, repeat)


def damage(file: Path, files: list[Path], chance: random.Random) -> None:
    """Damage a file: its content, or what stands under its name."""
    content = file.read_bytes()
    how = chance.randrange(len(DAMAGES) + 4)
    if how < len(DAMAGES) and content:
        file.write_bytes(DAMAGES[how](content, chance))
    elif how == len(DAMAGES):
        file.write_bytes(chance.choice([each for each in files if each != file] or files).read_bytes())
    elif how == len(DAMAGES) + 1:
        file.rename(file.with_name(f"{file.name}.bak"))
    elif how == len(DAMAGES) + 2:
        file.unlink()
        file.mkdir()
    else:
        file.unlink()


def told(path: Path, deep: bool) -> bool:
    try:
        return any(not each.ok or each.notes for each in statestore.verify(path, deep=deep))
    except StateStoreError:
        return True


def rows(path: Path) -> dict[str, list[str] | None]:
    """Return the rows of each state, None where an error of this package says that they cannot be read."""
    found: dict[str, list[str] | None] = {}
    try:
        states = statestore.inspect(path)
        names = list(states.tables())
    except StateStoreError:
        return found
    for name in names:
        try:
            found[name] = sorted(map(repr, states.table(name).scan().read_all().to_pylist()))
        except StateStoreError:
            found[name] = None
    return found


def attack(whole: Path, folder: Path, seed: int) -> int:
    """Damage a directory in many ways; returns how often verify told it."""
    truth, chance, count = rows(whole), random.Random(seed), 0
    names = sorted(each.relative_to(whole) for each in whole.rglob("*") if each.is_file())
    for trial in range(TRIALS):
        path = Path(shutil.copytree(whole, folder / str(trial) / whole.name, symlinks=True))
        name = chance.choice(names)
        has_checksums = (whole / name).read_bytes()[-8:] == TABLE_END
        damage(path / name, [path / each for each in names], chance)
        is_told = told(path, deep=chance.random() < 0.5)
        count += is_told
        differing = wrong(truth, rows(path))
        assert is_told or not (differing and has_checksums), (trial, name, differing)
        shutil.rmtree(folder / str(trial))
    return count


def wrong(truth: Mapping[str, list[str] | None], found: Mapping[str, list[str] | None]) -> list[str]:
    return [name for name, shown in found.items() if shown is not None and shown != truth.get(name)]


FLINK = (
    "heap-timers",  # a share of the slow cases takes the first, so it is the one with the fewest states
    "async-hashmap",
    "custom-rocksdb",
    "file-merging",
    "logged-generic",
    "logged-hashmap-snappy",
    "operator-rocksdb",
    "upgrade-rocksdb",
    "void-hashmap",
    "wide-rocksdb",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", FLINK)
def test_damages_of_flink(tmp_path: Path, name: str) -> None:
    """The newest savepoint of a run, and its job with the newest checkpoint."""
    paths = [Path(each["path"]) for each in manifest(name)["snapshots"]]
    savepoints = [each for each in paths if each.name.startswith("savepoint")]
    jobs = [each.parent for each in paths if each.name.startswith("chk-")]
    for path in (*savepoints[-1:], *jobs[-1:]):
        whole = copied(name, tmp_path / path.name) / path
        assert attack(whole, tmp_path / "trials", sum(map(ord, str(path)))) > TRIALS // 4


# Tasks of an application with stores of all kinds: key-value, window, session, join, versioned, list, global.
TASKS = (("0_0", "2_0", "9_0"), ("3_0", "7_0"), ("8_0", "11_0", "global"), ("5_0", "14_0", "15_0"))


@cache
def orders() -> Path:
    return unpacked("orders")


@pytest.mark.slow
@pytest.mark.parametrize("tasks", TASKS, ids="+".join)
def test_damages_of_a_state_directory(tmp_path: Path, tasks: tuple[str, ...]) -> None:
    whole = tmp_path / "orders"
    for task in tasks:
        shutil.copytree(orders() / "state" / "orders" / task, whole / task, symlinks=True)
    assert attack(whole, tmp_path / "trials", sum(map(ord, "".join(tasks)))) > TRIALS // 8


@pytest.mark.slow
@pytest.mark.parametrize("topic", ["menu", "audited-windows", "shifts", "payments-this-join-store"])
def test_damages_of_a_changelog(tmp_path: Path, topic: str) -> None:
    """Stores that are only in memory are read from their changelogs."""
    whole = tmp_path / "log"
    for folder in sorted((orders() / "log").glob(f"orders-{topic}-changelog-*")):
        shutil.copytree(folder, whole / folder.name)
    assert attack(whole, tmp_path / "trials", sum(map(ord, topic))) > TRIALS // 8
