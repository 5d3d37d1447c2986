"""Damage of stored files: flipped bits, cuts, zeros and swaps, drawn from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

PAGE = 4096
WAYS = ("flip a bit", "cut", "cut at a page", "cut to nothing", "zeros", "zeros of a page", "swap", "more bytes")


@dataclass(frozen=True)
class Damage:
    """A damage: ``way`` at ``at`` of the file, a share of its length from 0 to 1; ``draw`` seeds the remaining
    choices."""

    file: str
    way: str
    at: float
    draw: int

    def __str__(self) -> str:
        return f"{self.draw}"


def file_class(name: str) -> str:
    """The class of a file: its folder and ending, without numbers and ids."""
    folder, _, last = name.rpartition("/")
    first = folder if folder.startswith("log/") else folder.split("/", 1)[0]
    stem = "".join(c for c in last.split("-")[0] if c.isalpha()) if "." not in last else "." + last.split(".", 1)[1]
    return f"{first}/{stem}"


def drawn(root: Path, draw: int) -> Damage:
    """A random damage; every class of files is as probable as every other, however many files it has."""
    rng = random.Random(draw)
    names = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and path.stat().st_size)
    sorts: dict[str, list[str]] = {}
    for name in names:
        sorts.setdefault(file_class(name), []).append(name)
    chosen = rng.choice(sorts[rng.choice(sorted(sorts))])
    # Flips are what a disk does; and of all damage they are the hardest to see.
    way = "flip a bit" if rng.random() < 0.5 else rng.choice(WAYS)
    return Damage(chosen, way, rng.random(), draw)


def inflict(root: Path, damage: Damage) -> bool:
    """Damage the file; False if it has the same bytes as before."""
    path, rng = root / damage.file, random.Random(damage.draw + 1)
    before = path.read_bytes()
    data = bytearray(before)
    at = min(int(damage.at * len(data)), len(data) - 1)
    page = at // PAGE * PAGE
    if damage.way == "flip a bit":
        data[at] ^= 1 << rng.randrange(8)
    elif damage.way == "cut":
        del data[at:]
    elif damage.way == "cut at a page":
        del data[page:]
    elif damage.way == "cut to nothing":
        data.clear()
    elif damage.way == "zeros":
        end = min(len(data), at + rng.randint(1, 200))
        data[at:end] = bytes(end - at)
    elif damage.way == "zeros of a page":
        data[page : page + PAGE] = bytes(len(data[page : page + PAGE]))
    elif damage.way == "more bytes":
        data += rng.randbytes(rng.randint(1, 100))
    else:
        same = [p for p in sorted(root.rglob("*")) if p.is_file() and p != path and p.stat().st_size]
        sort = file_class(damage.file)
        same = [p for p in same if file_class(str(p.relative_to(root))) == sort] or same
        other = rng.choice(same)
        theirs = other.read_bytes()
        other.unlink()
        other.write_bytes(before)
        data = bytearray(theirs)
    path.unlink()  # hard links of it stay as they are
    path.write_bytes(data)
    return bytes(data) != before
