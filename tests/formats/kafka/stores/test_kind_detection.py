"""Guesses of kinds and serdes: right for every store of three real applications, and never shown as certain."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from support.kafka.applications import APPLICATIONS, copied, kind_of, opened, running, state, stores
from support.kafka.log_files import Logged
from support.kafka.made_logs import MadeLog
from support.kafka.real_applications import form_of
from support.kafka.store_rows import (
    encode_session_key,
    encode_store_key,
    encode_timestamped_headers,
    encode_with_headers,
)
from support.parameters import mostly_slow

from statestore.formats.kafka.changelog_source import SAMPLED, guess_logged
from statestore.formats.kafka.stores.kind_detection import KindGuess, detect_kind
from statestore.formats.kafka.stores.samples import Sample, StoreSamples, sample_store
from statestore.formats.kafka.stores.serde_guesses import guess_serde

UNGUESSED = {"upsell-left-shared-join-store"}  # its right values are all of one row
CERTAIN = ("timestamped-key-value", "headers-key-value", "timestamped-window")


@pytest.mark.parametrize("name", mostly_slow(APPLICATIONS, ["bookings", "ledger"]))
def test_the_kind_and_the_serdes_of_every_store_are_guessed(name: str) -> None:
    application = state(name)
    for store, found in stores(name).items():
        guess = detect_kind(sample_store(application, store))
        assert guess.kind == kind_of(found), (store, guess.evidence)
        assert guess.certain == (guess.kind in CERTAIN), store
        assert guess.evidence
        form = form_of(found)
        key, value = guess.serdes()
        if found["kind"] != "foreign-key-subscriptions" and store not in UNGUESSED:
            assert (key.name.lower(), value.name.lower()) == (form.key_serde, form.value_serde), store
        assert not key.certain or key.name == "Bytes"
        assert not value.certain or "Bytes" in value.name


def test_evidence_is_counted() -> None:
    guess = detect_kind(sample_store(state("orders"), "carts"))
    assert "61 of 61 sampled row keys end in a session within the segment" in guess.evidence
    assert "family default has rows" in guess.evidence
    twice = detect_kind(sample_store(state("orders"), "events"))
    assert any("have a sequence number, so the store keeps duplicates" in line for line in twice.evidence)


@pytest.mark.parametrize("store", ["stock", "menu", "carts"])
def test_without_rows_nothing_is_guessed(store: str) -> None:
    guess = detect_kind(sample_store(running("orders"), store))
    assert guess.kind is None
    assert not guess.certain


def test_families_alone_tell_something_of_a_store_without_rows() -> None:
    guess = detect_kind(sample_store(running("orders"), "prices"))
    assert (guess.kind, guess.certain) == ("timestamped-key-value", True)
    assert guess.keys == ((),)


def test_a_store_that_cannot_be_read_has_no_guess(tmp_path: Path) -> None:
    app = copied("bookings", tmp_path, "0_0")
    for path in (app / "0_0" / "rocksdb" / "rooms").glob("*"):
        path.unlink()
    samples = sample_store(opened(app), "rooms")
    assert detect_kind(samples) == KindGuess(None, False, ("no database of the store can be read",))
    assert "rooms" in samples.problems[0]


def sampled(rows: dict[bytes, bytes], start: int, end: int | None = None) -> StoreSamples:
    sample = Sample("default", start, end, tuple(sorted(rows.items())))
    return StoreSamples("s", True, frozenset({"default"}), (sample,))


def test_numbers_as_keys_do_not_turn_windows_into_sessions() -> None:
    start = 1_700_000_000_000
    windows = {encode_store_key(struct.pack(">q", key), start + key): b"x" for key in range(100)}
    guess = detect_kind(sampled(windows, start, start + 60_000))
    assert guess.kind == "window"
    assert guess.serdes()[0].name == "Long"
    sessions = {encode_session_key(struct.pack(">q", key), start - key, start + key): b"x" for key in range(100)}
    assert detect_kind(sampled(sessions, start, start + 60_000)).kind == "session"


def test_rows_outside_their_segment_count_against_a_kind() -> None:
    start = 1_700_000_000_000
    rows = {encode_store_key(b"%d" % key, start + 60_000 * (key == 7)): b"x" for key in range(10)}
    guess = detect_kind(sampled(rows, start, start + 60_000))
    assert "9 of 10 sampled row keys end in a start within the segment" in guess.evidence
    assert not guess.certain


@pytest.mark.parametrize("family", ["keyValueWithTimestampAndHeaders", "sessionKeyValueWithHeaders"])
def test_values_are_found_behind_their_headers(family: str) -> None:
    """A value without such a front stays as it is: headers of length -1, longer than the value, no text, cut off."""
    headers = [("h", b"1"), ("n", None)]
    good = {
        encode_timestamped_headers(b"t%d" % size, 5, headers[:size])
        if family.startswith("key")
        else encode_with_headers(b"t%d" % size, headers[:size])
        for size in range(3)
    }
    bad = {bytes.fromhex(data) for data in ("01" + "00" * 8, "14026b" + "00" * 8, "0202ff0201" + "00" * 8, "06040001")}
    start = 1_700_000_000_000
    rows = tuple(
        (encode_session_key(b"key", start, start + number), value) for number, value in enumerate(sorted(good | bad))
    )
    sample = Sample(family, start, start + 60_000, rows)
    samples = StoreSamples("s", family.startswith("session"), frozenset({family}), (sample,))
    assert set(detect_kind(samples).values[0]) == {b"t0", b"t1", b"t2", *bad}


@pytest.mark.parametrize(
    ("sample", "name"),
    [
        ([b"caf\xc3\xa9", b"a", b""], "String"),
        ([struct.pack(">q", number) for number in (1, -5, 2**40, 2**63 - 1)], "Long"),
        ([struct.pack(">d", number) for number in (0.5, -3e7, 0.0)], "Double"),
        ([struct.pack(">i", number) for number in (1, 99, -7)], "Integer"),
        ([struct.pack(">f", number) for number in (0.5, 12.25)], "Float"),
        ([struct.pack(">h", number) for number in (1, -2, 300)], "Short"),
        ([b"\0", b"\1"], "Boolean"),
        ([b"123e4567-e89b-12d3-a456-426614174000"], "UUID"),
        ([b'{"a": 1}', b"[]"], "json"),
        ([b'{"a": 1', b"[]"], "String"),
        ([b"\0\0\0\0\x11" + text for text in (b'{"a": 1}', b"[]", b'"key"')], "json-schema"),
        ([b'\0\0\0\0\x11{"a": 1}', b'\0\0\0\1\x12{"a": [2]}'], "json-schema"),
        ([b'\0\0\0\0\x11{"a": NaN}', b"\0\0\0\0\x11\x80"], "Bytes"),
        ([b"\0\0\0\0\x11{}", b"\0\0\0\0\x11\x02\x80"], "Bytes"),
        ([b"\xff\xfe\x00", b"\x80"], "Bytes"),
        ([], "Bytes"),
        ([b""], "Bytes"),
        ([bytes([0, 0, 0, 0, 7]) + b"\x02\x80abc"], "Bytes"),
    ],
)
def test_serdes_are_guessed_from_bytes(sample: list[bytes], name: str) -> None:
    guess = guess_serde(sample)
    assert guess.name == name
    assert guess.certain == (name == "Bytes")
    assert guess.evidence


def test_values_of_a_schema_registry_are_named() -> None:
    assert "schema id 7" in guess_serde([bytes([0, 0, 0, 0, 7]) + b"\x02\x80abc"]).evidence


def test_text_of_eight_letters_is_text_and_not_certain() -> None:
    guess = guess_serde([b"december", b"november"])
    assert (guess.name, guess.certain) == ("String", False)


@pytest.mark.parametrize("piece", [1, 2, 7, SAMPLED, 4 * SAMPLED])
def test_a_guess_from_records_does_not_depend_on_the_lots_in_which_they_come(piece: int) -> None:
    """Real brokers' segments give small lots where batches are compressed. Two of the first three keys are the least
    and the greatest long, so too few of the first lot's keys are usual numbers; the text after the sample is not seen.
    """
    numbers = [-(2**63), 2**63 - 1, 7, 1 << 40, -5]
    keys = [struct.pack(">q", numbers[min(i, len(numbers) - 1)]) for i in range(SAMPLED)] + [b"text"]
    logged = [Logged(i, 1_714_550_400_000 + i, key, b"x") for i, key in enumerate(keys)]
    guess = guess_logged([MadeLog(logged, piece=piece)])
    assert [serde.name for serde in guess.serdes()] == ["Long", "String"]
