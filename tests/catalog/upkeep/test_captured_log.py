"""The versions of a source in a captured store whose log is packed, trimmed and expired, as a capture resumes on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.stores.captured import KEYED, KEYED_COLUMNS, capture, new_store
from support.stores.short_chunks import LENGTH, short_chunks

import statestore
from statestore.catalog.log.entries import encode_entry, entry_name, read_entry
from statestore.catalog.log.entry_packs import PACKS
from statestore.catalog.log.source_versions import Gap, SourceVersion
from statestore.catalog.log.version_chunks import CHUNKS
from statestore.catalog.stores.versioned.captured_store import CapturedStore
from statestore.formats.errors import ConflictError
from statestore.formats.notices import notices_to

SECOND = 1_000_000
COUNT = 5 * LENGTH + 3


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    with short_chunks():
        yield


def source(number: int) -> SourceVersion:
    """Return every second version of the source; before every tenth commit one is missing."""
    missing = (2 * number - 1, 2 * number - 1) if number % 10 == 0 else None
    return SourceVersion(2 * number, number * SECOND, number * SECOND - 5, f"at {number}", missing)


def gap(number: int) -> Gap:
    return Gap(2 * number - 1, 2 * number - 1, (number - 1) * SECOND, number * SECOND, number)


@pytest.fixture
def made(tmp_path: Path) -> CapturedStore:
    new_store(tmp_path, "counts", KEYED, KEYED_COLUMNS).close()
    store: CapturedStore = statestore.connect(tmp_path).open_store("counts", auto_compact=False)
    for number in range(1, COUNT + 1):
        old = {("a",): (number - 1,)} if number > 1 else {}
        assert capture(store, source(number), old, {("a",): (number,)}, 2 * number - 2 or None) == number
    return store


def rows_of(path: Path) -> list[tuple[Any, ...]]:
    names = ("batch", "offsets", "watermark", "missing_from", "missing_to")
    table = statestore.inspect(path).table("counts").versions()
    return list(zip(*(table[name].to_pylist() for name in names), strict=True))


def test_versions_of_a_source_outlive_their_entries(tmp_path: Path, made: CapturedStore) -> None:
    """In packs, and where the entries are gone, in chunks; an expiry takes the gaps before it out of every answer."""
    told = rows_of(tmp_path)
    assert told[20][0] == 40 and told[20][1] == "at 20" and told[20][3:] == (39, 39)
    made.vacuum(older_than=0)
    assert made._storage.list(PACKS) and made._storage.list(CHUNKS)
    assert read_entry(made._storage, 20).source == source(20)
    assert rows_of(tmp_path) == told and not statestore.verify(tmp_path)[0].problems
    made.expire(before=2 * LENGTH * 1_000)
    made.vacuum(older_than=0)
    assert not made._storage.exists(entry_name(20)) and len(made._storage.list(PACKS)) < 4
    assert rows_of(tmp_path)[: COUNT + 1] == told and not statestore.verify(tmp_path)[0].problems
    again = statestore.connect(tmp_path).open_store("counts", auto_compact=False)
    log_state = again._files.log.newest()
    assert again.newest == source(COUNT) and log_state.captured.commit == COUNT
    assert list(log_state.gaps) == [gap(number) for number in range(40, COUNT, 10)]
    heard: list[str] = []
    with notices_to(heard.append):
        again.history().to_arrow()
    assert [f"batch {2 * number - 1} was gone" in text for number, text in zip((40, 50, 60), heard, strict=False)] == [
        True
    ] * 3
    assert capture(again, source(20), {}, {("a",): (20,)}, 38) == 20, "it was captured, however long ago"
    with pytest.raises(ConflictError, match="VERSION_TAKEN"):
        capture(again, SourceVersion(41, COUNT * SECOND), {}, {}, 40)
    newest = again.version
    assert capture(again, source(COUNT + 1), {("a",): (COUNT,)}, {("a",): (0,)}, 2 * COUNT) == newest + 1


@pytest.mark.parametrize(
    "wrong", [SourceVersion(4, COUNT * SECOND), SourceVersion(2 * COUNT, SECOND)], ids=["number", "time"]
)
def test_versions_in_another_order_are_found_by_a_verification(
    tmp_path: Path, made: CapturedStore, wrong: SourceVersion
) -> None:
    entry = read_entry(made._storage, COUNT)
    path = tmp_path / "counts" / entry_name(COUNT)
    path.write_bytes(encode_entry(replace(entry, source=wrong, transaction=("other", wrong.version))))
    told = f"captures version {wrong.version} of the source after version {2 * COUNT - 2}"
    assert any(told in problem.message for problem in statestore.verify(tmp_path)[0].problems)
