"""Random values of random types, as the coders of PyFlink write them, for ``tests/data/flink/python_coders.json.xz``.

    python coder_values.py FILE

writes JSON: for each type its text as for the option ``type``, and its values as pairs of hexadecimal digits and the
value. SQL timestamps before 1970 have no fraction of a second: PyFlink writes such ones a second late. It needs
``apache-flink`` alone, no Java.
"""

import datetime
import decimal
import json
import lzma
import pickle
import random
import sys
from pathlib import Path
from typing import Any

import pytz
from pyflink.common import Row, Types
from pyflink.common.time import Instant
from pyflink.fn_execution import coders
from pyflink.fn_execution.coders import from_type_info

TYPES, VALUES, DEPTH = 90, 14, 3
chance = random.Random(20261129)
EPOCH = datetime.datetime(1970, 1, 1)


def text() -> str:
    letters = "abc\u00e9\u20ac\U0001f600\x00\x01\u0800\uffff"
    return "".join(chance.choice(letters) for _ in range(chance.randrange(6)))


def whole(bits: int) -> int:
    least = -(2 ** (bits - 1))
    drawn: int = chance.choice([0, -1, 1, least, -least - 1, chance.randrange(least, -least)])
    return drawn


def moment(micros: int = 1000) -> datetime.datetime:
    seconds = chance.randrange(-9_000_000_000, 9_000_000_000)
    fraction = chance.randrange(1_000_000 // micros) * micros if seconds >= 0 else 0
    return EPOCH + datetime.timedelta(seconds=seconds, microseconds=fraction)


def number(digits: int) -> decimal.Decimal:
    return decimal.Decimal(chance.randrange(-(10**digits) + 1, 10**digits)).scaleb(-chance.randrange(10))


LEAVES: list[Any] = [
    (Types.LONG(), "bigint", lambda: whole(64)),
    (Types.BIG_INT(), "bigint", lambda: whole(64)),
    (Types.INT(), "int", lambda: whole(32)),
    (Types.SHORT(), "smallint", lambda: whole(16)),
    (Types.BYTE(), "tinyint", lambda: whole(8)),
    (Types.BOOLEAN(), "boolean", lambda: chance.random() < 0.5),
    (Types.FLOAT(), "float", lambda: chance.randrange(-(2**20), 2**20) / 2**10),
    (Types.DOUBLE(), "double", lambda: chance.gauss(0, 1e9)),
    (Types.STRING(), "string", text),
    (Types.CHAR(), "string", text),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), "binary", lambda: chance.randbytes(chance.randrange(7))),
    (Types.BIG_DEC(), "decimal(38,12)", lambda: number(20)),
    (Types.BIG_DEC(), "string", lambda: number(60)),
    (Types.SQL_DATE(), "date", lambda: moment().date()),
    (Types.SQL_TIME(), "time", lambda: moment().time()),
    (Types.SQL_TIMESTAMP(), "timestamp_ntz", moment),
    (Types.INSTANT(), "timestamp", lambda: Instant(whole(32), chance.randrange(10**9))),
    (Types.PICKLED_BYTE_ARRAY(), "pickle", lambda: {"any": [whole(16), text()]}),
    (
        Types.PRIMITIVE_ARRAY(Types.INT()),
        "array<int not null>",
        lambda: [whole(32) for _ in range(chance.randrange(4))],
    ),
    (Types.PRIMITIVE_ARRAY(Types.DOUBLE()), "array<double not null>", lambda: [float(whole(16)) for _ in range(3)]),
    (
        Types.PRIMITIVE_ARRAY(Types.BOOLEAN()),
        "array<boolean not null>",
        lambda: [chance.random() < 0.5 for _ in range(3)],
    ),
    (
        Types.PRIMITIVE_ARRAY(Types.CHAR()),
        "array<string not null>",
        lambda: [text() for _ in range(chance.randrange(4))],
    ),
]


def maybe(value: Any, nulls: float) -> Any:
    return lambda: None if chance.random() < nulls else value()


def some(value: Any, most: int = 4) -> Any:
    return lambda: [value() for _ in range(chance.randrange(most))]


def random_type(depth: int) -> Any:
    if depth == 0 or chance.random() < 0.25:
        return chance.choice(LEAVES)
    kind = chance.choice(["list", "basic", "object", "map", "tuple", "row", "row"])
    if kind in ("list", "basic", "object"):
        made = {"list": Types.LIST, "basic": Types.BASIC_ARRAY, "object": Types.OBJECT_ARRAY}[kind]
        element = chance.choice(LEAVES[:10]) if kind == "basic" else random_type(depth - 1)
        return made(element[0]), f"array<{element[1]}>", some(maybe(element[2], 0.3))
    if kind == "map":
        key, value = chance.choice([LEAVES[0], LEAVES[2], LEAVES[8], LEAVES[13]]), random_type(depth - 1)
        items = some(lambda: (key[2](), maybe(value[2], 0.3)()))
        return Types.MAP(key[0], value[0]), f"map<{key[1]}, {value[1]}>", lambda: dict(items())
    fields = [
        random_type(depth - 1) for _ in range(chance.choice([1, 2, 3, 5, 6, 7, 14, 15] if depth == 1 else [1, 2, 3]))
    ]
    names = [f"f{i}" for i in range(len(fields))]
    kinds, mark = [each[0] for each in fields], " not null" if kind == "tuple" else ""
    ddl = f"struct<{', '.join(f'{name}: {each[1]}{mark}' for name, each in zip(names, fields, strict=True))}>"
    if kind == "tuple":
        return Types.TUPLE(kinds), ddl, lambda: tuple(each[2]() for each in fields)
    values = [maybe(each[2], 0.3) for each in fields]
    return Types.ROW_NAMED(names, kinds), ddl, lambda: Row(**{n: each() for n, each in zip(names, values, strict=True)})


def plain(value: Any) -> Any:
    """A value as JSON has it. A dictionary with the key ``any`` is what was pickled."""
    if isinstance(value, Row):
        return {name: plain(each) for name, each in value.as_dict().items()}
    if isinstance(value, tuple):
        return {f"f{i}": plain(each) for i, each in enumerate(value)}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        if "any" in value:
            return plain(pickle.dumps(value))
        return [[plain(key), plain(each)] for key, each in value.items()]
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, Instant):
        return {"instant": [value.seconds, value.nanos]}
    return value if isinstance(value, str | int | float | None) else str(value)


SQL: list[Any] = [
    (coders.TimestampCoder(3), "timestamp_ntz(3)", moment),
    (coders.TimestampCoder(6), "timestamp_ntz(6)", lambda: moment(1)),
    (coders.LocalZonedTimestampCoder(3, pytz.utc), "timestamp_ltz(3)", moment),
    (coders.LocalZonedTimestampCoder(6, pytz.utc), "timestamp_ltz(6)", lambda: moment(1)),
    (coders.DecimalCoder(10, 3), "decimal(10,3)", lambda: decimal.Decimal(f"{whole(20)}E-3")),
    (coders.DecimalCoder(38, 18), "decimal(38,18)", lambda: decimal.Decimal(f"{whole(64)}E-18")),
]


def run(file: str) -> None:
    found = []
    kinds = [*((from_type_info(kind), ddl, value) for kind, ddl, value in LEAVES), *SQL]
    while len(kinds) < TYPES:
        kind, ddl, value = random_type(DEPTH)
        kinds.append((from_type_info(kind), ddl, value))
    for coder, ddl, value in kinds:
        pairs = []
        for each in (value() for _ in range(VALUES)):
            pairs.append([coder.get_impl().encode(each).hex(), plain(each)])
        found.append({"type": ddl, "values": pairs})
    Path(file).write_bytes(lzma.compress(json.dumps(found).encode(), preset=9))


if __name__ == "__main__":
    run(sys.argv[1])
