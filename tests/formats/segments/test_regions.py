"""No byte of a region is returned before its checksum has matched."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
import xxhash

from statestore.formats.errors import CorruptError
from statestore.formats.segments.regions import REGION_BYTES, VerifiedBytes, checksum_regions
from statestore.formats.segments.segment_meta import FileRef

CONTENT = bytes(range(256)) * (REGION_BYTES // 256) * 3 + b"tail"


def _ref(content: bytes = CONTENT) -> FileRef:
    return FileRef("segments/a.arrow", len(content), checksum_regions(pa.py_buffer(content)))


def _damaged(position: int) -> pa.Buffer:
    content = bytearray(CONTENT)
    content[position] ^= 1
    return pa.py_buffer(bytes(content))


def test_checksums_are_xxh3_per_region() -> None:
    """Sixteen lower-case hex digits of xxh3_64 for each MiB, the last region being what remains."""
    parts = [CONTENT[start : start + REGION_BYTES] for start in range(0, len(CONTENT), REGION_BYTES)]
    assert len(parts) == 4
    assert _ref().checksums == "".join(f"{xxhash.xxh3_64_intdigest(part):016x}" for part in parts)


@pytest.mark.parametrize("length", [0, 1, REGION_BYTES - 1, REGION_BYTES, REGION_BYTES + 1])
def test_intact_bytes_pass(length: int) -> None:
    """Any length of file is verified as a whole."""
    ref = _ref(CONTENT[:length])
    verified = VerifiedBytes(ref, pa.py_buffer(CONTENT[:length]))
    verified.verify_all()
    assert verified.complete


@pytest.mark.parametrize("position", [0, 1, REGION_BYTES - 1, REGION_BYTES, 2 * REGION_BYTES + 77, len(CONTENT) - 1])
def test_flipped_bit(position: int) -> None:
    """The damaged region alone is refused; the error says file, region, range, found and expected."""
    verified = VerifiedBytes(_ref(), _damaged(position))
    damaged = position // REGION_BYTES
    for region in set(range(4)) - {damaged}:
        verified.verify(region * REGION_BYTES, 1)
    for _ in range(2):
        with pytest.raises(CorruptError) as caught:
            verified.verify(position, 1)
        assert caught.value.code == "SEGMENT_CORRUPT"
    expected = _ref().checksums[16 * damaged : 16 * damaged + 16]
    for part in ("segments/a.arrow", f"region {damaged} ", f"bytes {damaged * REGION_BYTES} to ", expected, "restore"):
        assert part in caught.value.message
    assert not verified.complete


def test_range_over_several_regions() -> None:
    """A range is refused if any region that it touches is damaged."""
    verified = VerifiedBytes(_ref(), _damaged(REGION_BYTES + 5))
    verified.verify(0, REGION_BYTES)
    with pytest.raises(CorruptError, match="region 1 "):
        verified.verify(REGION_BYTES - 1, REGION_BYTES + 2)


def test_each_region_is_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that were found intact are not hashed again."""
    verified = VerifiedBytes(_ref(), pa.py_buffer(CONTENT))
    verified.verify(0, REGION_BYTES + 1)
    monkeypatch.setattr(VerifiedBytes, "_check", lambda self, region: pytest.fail(f"region {region} hashed again"))
    verified.verify(5, REGION_BYTES)


@pytest.mark.parametrize("length", [0, 1, len(CONTENT) - 1, len(CONTENT) + 1])
def test_wrong_length(length: int) -> None:
    """A file that is shorter or longer than recorded is refused before anything is hashed."""
    with pytest.raises(CorruptError, match=f"{length} bytes found, the commit says {len(CONTENT)}") as caught:
        VerifiedBytes(_ref(), pa.py_buffer((CONTENT + b"x")[:length]))
    assert caught.value.code == "SEGMENT_TRUNCATED"


@pytest.mark.parametrize(("offset", "length"), [(-1, 2), (0, -1), (0, len(CONTENT) + 1), (2**62, 2**62)])
def test_range_outside_the_file(offset: int, length: int) -> None:
    """A reference beyond the file is damage, not an index error."""
    with pytest.raises(CorruptError, match="it refers to bytes"):
        VerifiedBytes(_ref(), pa.py_buffer(CONTENT)).verify(offset, length)


def test_missing_checksums() -> None:
    """A commit without a checksum for each region cannot verify the file."""
    with pytest.raises(CorruptError, match="48 checksum digits for it, expected 64"):
        VerifiedBytes(replace(_ref(), checksums=_ref().checksums[16:]), pa.py_buffer(CONTENT))


def test_foreign_buffer() -> None:
    """Memory that is not a part of the file has no place in it."""
    verified = VerifiedBytes(_ref(), pa.py_buffer(CONTENT))
    assert verified.offset_of(verified.slice(10, 20)) == 10
    with pytest.raises(CorruptError):
        verified.offset_of(pa.py_buffer(b"elsewhere"))
