"""The newest record of each key, of which only hashes are held, and the same without compiled loops."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.kafka.changelog_loops import changelog_loops

from statestore.formats.bytes import newest_of_keys
from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.bytes.newest_of_keys import newest_passes
from statestore.formats.kernels import compiled_use
from statestore.formats.kernels.newest_kernels import sip_hashes

__all__ = ["changelog_loops"]

KEYS = st.integers(0, 40).map(lambda number: b"%d" % number * (number % 12))
assert compiled_use.is_loaded()  # by the import of kernels


def cells(keys: list[bytes]) -> Cells:
    return cells_of(pa.array(keys, pa.binary()))


def test_hashes_of_keys_are_siphash() -> None:
    """The first outputs of 128 bits that the authors of SipHash publish: of 0, 1, 2 ... under the secret 0 to 15."""
    published = {
        0: "a3817f04ba25a8e66df67214c7550293",
        1: "da87c1d86b99af44347659119b22fc45",
        3: "9c70b60c5267a94e5f33b6b02985ed51",
        15: "5493e99933b0a8117e08ec0f97cfc3d9",
    }
    data, sizes = np.arange(64, dtype=np.uint8), np.array(list(published))
    low, high = np.empty(len(sizes), np.uint64), np.empty(len(sizes), np.uint64)
    sip_hashes(data, np.zeros(len(sizes), np.int64), sizes, np.frombuffer(bytes(range(16)), np.uint64), low, high)
    found = [int(a).to_bytes(8, "little") + int(b).to_bytes(8, "little") for a, b in zip(low, high, strict=True)]
    assert [digest.hex() for digest in found] == list(published.values())


@pytest.mark.usefixtures("changelog_loops")
@settings(deadline=None)  # the first example may load compiled code
@given(st.lists(st.lists(KEYS, max_size=40), max_size=5), st.lists(KEYS), st.sampled_from([1, 5, 1000]))
def test_each_key_is_newest_once_and_others_are_unnoted(
    runs: list[list[bytes]], probes: list[bytes], most: int
) -> None:
    keys = [key for run in runs for key in run]
    newest, unnoted = np.zeros(len(keys), np.int64), np.zeros(len(probes), np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(newest_of_keys, "FIRST_SLOTS", 4)
        for noted in newest_passes(most):
            for run in runs:
                noted.note(cells(run))
            first = 0
            for run in runs:
                newest[first : first + len(run)] += noted.newest(first, len(run))
                first += len(run)
            unnoted += _all(noted.unnoted(cells(probes)), len(probes))
    assert newest.tolist() == [int(key not in keys[row + 1 :]) for row, key in enumerate(keys)]
    assert unnoted.tolist() == [int(probe not in keys) for probe in probes]


def test_a_pass_holds_no_more_keys_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest_of_keys, "FIRST_SLOTS", 64)
    keys = cells([b"key %d" % number for number in range(5000)])
    counts = []
    for noted in newest_passes(600):
        noted.note(keys)
        counts.append(int(noted.newest(0, len(keys)).sum()))
        assert not _all(noted.unnoted(keys), len(keys)).any()
    assert sum(counts) == 5000
    assert max(counts) <= 1024 * 3 // 4  # a table of 512 slots holds fewer than 600 keys
    assert len(counts) < 30


def _all(found: np.ndarray | None, count: int) -> np.ndarray:
    return np.ones(count, np.bool_) if found is None else found
