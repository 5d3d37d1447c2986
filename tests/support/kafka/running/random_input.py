"""Random records for the parts of an application: times that go on, stand still, come late and very late; tombstones;
keys that are empty, prefixes of others, negative, or hold U+0000."""

from __future__ import annotations

import random
from typing import Any

from support.kafka.running.application import Part
from support.kafka.running.broker import Record

START_MS = 1_714_550_400_000
KEYS: dict[str, list[Any]] = {
    "string": ["", "a", "ab", "abc", "a\0", "été", "kiwi", "\N{KIWIFRUIT}"],
    "integer": [-1, -(2**31), 0, 7, 2**31 - 1],
    "long": [-5, -(2**63), 0, 1 << 40, 2**63 - 1],
}
WORDS = ["", "a", "kiwi", "\N{KIWIFRUIT}", "zz z"]
STEP_MS = 500


def many_records(seed: object, count: int, start: int = START_MS) -> list[Record]:
    """Records of integer keys and short texts: mostly keys of their own, some written again, some deleted."""
    chance = random.Random(f"{seed}")
    keys = [i if chance.random() < 0.8 else chance.randrange(count) for i in range(count)]
    values = [None if chance.random() < 0.1 else f"{chance.choice(WORDS)}{key * 7919}" for key in keys]
    return [Record(key, value, start + i) for i, (key, value) in enumerate(zip(keys, values, strict=True))]


def random_records(part: Part, name: str, seed: object, count: int, start: int = START_MS) -> list[Record]:
    """Records for an input of a part; the first of each key are on time, so that each partition's stream time moves
    beyond ``start`` before anything comes late."""
    chance = random.Random(f"{seed} {name}")
    keys = KEYS[part.key_serde]
    records, now = [], start
    for i in range(count):
        now += chance.choice((0, STEP_MS // 2, STEP_MS, 2 * STEP_MS))
        late = 0
        if i >= len(keys):
            late = chance.choices((0, chance.randrange(20_000), chance.randrange(200_000)), (20, 4, 1))[0]
        key = keys[i] if i < len(keys) else chance.choice(keys)
        records.append(Record(key, _value(part, name, chance), max(now - late, 0), _headers(chance)))
    return records


def _value(part: Part, name: str, chance: random.Random) -> Any:
    if chance.random() < 0.15 and not part.role.endswith("-count") and part.role != "join":
        return None
    serde = part.inputs[name]
    if serde == "string":
        return chance.choice(WORDS) + chance.choice(("", str(chance.randrange(1000))))
    bits = 31 if serde == "integer" else 63
    return chance.choice((chance.randrange(100), chance.randrange(-(2**bits), 2**bits)))


def _headers(chance: random.Random) -> tuple[tuple[str, bytes | None], ...]:
    found: list[tuple[str, bytes | None]] = [("source", b"s1"), ("empty", b""), ("null", None), ("source", b"\xff\0")]
    return tuple(chance.sample(found, chance.choice((0, 0, 1, 2, 4))))
