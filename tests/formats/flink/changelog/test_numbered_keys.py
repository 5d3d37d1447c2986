"""Numbers of keys against a model in plain Python."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest
from support.parameters import mostly_slow

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.flink.changelog.numbered_keys import numbered
from statestore.formats.kernels import compiled_use


@pytest.mark.parametrize("by_group", [True, False])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("seed", mostly_slow(list(range(30)), [0, 1]))
def test_equal_keys_have_one_number(seed: int, compiled: bool, by_group: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if compiled:
        pytest.importorskip("numba")
        __import__(compiled_use.COMPILED)
    monkeypatch.setattr(compiled_use, "is_loaded", lambda: compiled)
    monkeypatch.setattr("statestore.formats.flink.changelog.numbered_keys.is_loaded", lambda: compiled)
    random = Random(seed)
    names = [
        bytes([random.randrange(9)]) + random.randbytes(random.randrange(20)) for _ in range(random.randint(1, 80))
    ]
    keys = [random.choice(names) for _ in range(random.randrange(300))]
    groups = np.array([key[0] for key in keys], np.int64) if by_group else None
    found = numbered(cells_of(pa.array(keys, pa.binary())), groups)
    last = {key: place for place, key in enumerate(keys)}
    first = {key: place for place, key in reversed(list(enumerate(keys)))}
    assert len(found) == len(last)
    number_of = dict(zip(keys, found.number.tolist(), strict=True))
    assert sorted(number_of.values()) == list(range(len(number_of)))
    assert [number_of[key] for key in keys] == found.number.tolist()
    assert found.is_newest.tolist() == [last[key] == place for place, key in enumerate(keys)]
    assert dict(enumerate(found.first.tolist())) == {number_of[key]: place for key, place in first.items()}
    asked = [*names, *(name + b"x" for name in names), b"\xff", b"\x20"]
    of_asked = np.array([name[0] for name in asked], np.int64) if by_group else None
    places = found.find(cells_of(pa.array(asked, pa.binary())), of_asked)
    assert places.tolist() == [number_of.get(name, -1) for name in asked]


def test_an_empty_key_is_a_key() -> None:
    found = numbered(cells_of(pa.array([b"", b"a", b""], pa.binary())))
    assert found.is_newest.tolist() == [False, True, True]
