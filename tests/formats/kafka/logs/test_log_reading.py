"""Random logs of a plain writer: batches of every form, transactions, unfinished ends, damage."""

from __future__ import annotations

import pickle
import random
import struct
import zlib
from pathlib import Path

import pytest
from support.kafka.changelog_loops import changelog_loops
from support.kafka.log_files import CODECS, START, Headers, Logged, LogWriter, batch_bytes, compressed, crc32c
from support.parameters import mostly_slow, named

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import ConflictError, CorruptError, InvalidInputError, UnsupportedError
from statestore.formats.kafka.logs import segment_walk
from statestore.formats.kafka.logs.log_directory import log_partitions
from statestore.formats.kafka.logs.log_reading import SegmentLog, log_records, open_log

__all__ = ["changelog_loops"]

Row = tuple[int, bytes | None, bytes | None, Headers]


def row_of(chance: random.Random) -> Row:
    headers = tuple(
        (chance.choice(["h", "", "é"]), chance.choice([None, b"", chance.randbytes(3)]))
        for _ in range(chance.choice([0, 0, 0, 1, 3]))
    )
    value = chance.choice([None, b"", chance.randbytes(chance.randrange(200))])
    return START + chance.randrange(-(10**6), 10**6), chance.choice([None, chance.randbytes(3), b""]), value, headers


def random_log(seed: int) -> LogWriter:
    """A log with batches of every codec, in and outside of transactions of three producers."""
    chance, log = random.Random(seed), LogWriter()
    for _ in range(chance.randrange(1, 40)):
        producer = chance.randrange(3)
        if chance.random() < 0.3:
            log.end(producer, chance.random() < 0.5)
            continue
        inside = chance.random() < 0.6
        log.append(
            [row_of(chance) for _ in range(chance.randrange(1, 9))],
            codec=chance.choice(list(CODECS)),
            producer=producer if inside else -1,
            transactional=inside,
            appended_at=START + 5 if chance.random() < 0.2 else None,
        )
    return log


def opened(folder: Path) -> SegmentLog:
    return open_log(log_partitions(folder)[0])


def rows_of(log: SegmentLog) -> list[dict[str, object]]:
    return [row for records in log.read() for row in records.batch().to_pylist()]


def simple(count: int, codec: str = "none") -> LogWriter:
    log = LogWriter()
    for number in range(count):
        log.append([(START + number, b"k%d" % number, b"v" * 9, ())] * 2, codec=codec)
    return log


@pytest.mark.parametrize("seed", mostly_slow(range(40), 7))
@pytest.mark.usefixtures("changelog_loops")
def test_a_consumer_and_the_reader_agree(tmp_path: Path, seed: int) -> None:
    written, chance = random_log(seed), random.Random(seed)
    folder = written.write(tmp_path / "t-0", [chance.randrange(40) for _ in range(3)])
    log = opened(folder)
    wanted = [record.row() for record in written.committed()]
    assert rows_of(log) == wanted
    found = log.findings
    assert found.records == len(wanted) and found.next_offset == written.next and found.missing_offsets == 0
    assert found.records + found.aborted_records + found.unstable_records == len(written.all)
    every = [row for batch in log_records(folder, isolation="read_uncommitted") for row in batch.to_pylist()]
    assert every == [record.row() for record, _ in written.all]


@pytest.mark.usefixtures("changelog_loops")
def test_small_pieces_of_a_file_give_the_same_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches across the border of a piece, larger than a piece, and more than a table has rows."""
    monkeypatch.setattr(segment_walk, "_CHUNK", 200)
    monkeypatch.setattr(segment_walk, "_ROWS", 2)
    written = random_log(7)
    log = opened(written.write(tmp_path / "t-0"))
    assert rows_of(log) == [record.row() for record in written.committed()]


@pytest.mark.usefixtures("changelog_loops")
def test_compaction_leaves_gaps_in_and_between_batches(tmp_path: Path) -> None:
    kept = [Logged(13, START, b"a", b"1"), Logged(17, START + 4, b"b", b"2")]
    data = batch_bytes(kept, base=10, last=19, codec="lz4") + batch_bytes([], base=20, last=29, records_bytes=b"")
    data += batch_bytes([Logged(40, START, b"c", None)])
    (tmp_path / "t-3").mkdir()
    (tmp_path / "t-3" / f"{0:020d}.log").write_bytes(data)
    log = opened(tmp_path / "t-3")
    records = list(log.read())
    assert [row for each in records for row in each.batch(("partition", "offset")).to_pylist()] == [
        {"partition": 3, "offset": offset} for offset in (13, 17, 40)
    ]
    assert [n for each in records if each.missing is not None for n in each.missing.tolist()] == [13, 16, 38]
    assert log.findings.missing_offsets == 38 and log.findings.first_offset == 10 and log.findings.next_offset == 41


def test_a_transaction_without_marker_hides_what_follows(tmp_path: Path) -> None:
    written = LogWriter()
    written.append([(START, b"a", b"1", ())])
    written.append([(START, b"b", b"2", ())], producer=7, transactional=True)
    written.append([(START, b"c", b"3", ())])
    log = opened(written.write(tmp_path / "t-0"))
    assert [row["key"] for row in rows_of(log)] == [b"a"]
    assert log.findings.unstable_records == 2
    assert "producer 7" in log.findings.notes()[0]


@pytest.mark.parametrize("cut", [1, 10, 16, 17, 30, 60, 61, 75])
@pytest.mark.usefixtures("changelog_loops")
def test_an_unfinished_batch_at_the_end_is_reported(tmp_path: Path, cut: int) -> None:
    written = simple(5)
    folder = written.write(tmp_path / "t-0")
    file = next(folder.iterdir())
    whole = b"".join(written.batches[:4])
    file.write_bytes(whole + written.batches[4][:cut])
    log = opened(folder)
    assert len(rows_of(log)) == 8
    tail = log.findings.tail
    assert tail is not None and (tail.position, tail.bytes) == (len(whole), cut)


def test_a_preallocated_file_ends_in_zeros(tmp_path: Path) -> None:
    folder = simple(3).write(tmp_path / "t-0")
    file = next(folder.iterdir())
    file.write_bytes(file.read_bytes() + bytes(1000))
    log = opened(folder)
    assert len(rows_of(log)) == 6 and log.findings.tail is None


def test_an_early_end_before_another_segment_is_damage(tmp_path: Path) -> None:
    folder = simple(6).write(tmp_path / "t-0", [3])
    first = min(folder.iterdir())
    first.write_bytes(first.read_bytes()[:-5])
    with pytest.raises(CorruptError, match="a later segment follows") as error:
        opened(folder)
    assert error.value.code == ErrorCode.KAFKA_LOG


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("batch", [0, 2, 4])
def test_no_changed_byte_goes_unseen(
    tmp_path: Path, batch: int, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte of a batch is changed: an error names file and position of the batch, or of the one that follows it.

    Of the last batch only the base offset, which no checksum covers, can rise; the leader epoch is not read.
    """
    from statestore.formats.kafka.logs import record_batches

    monkeypatch.setattr(record_batches, "is_loaded", lambda: compiled)
    written = simple(5, "gzip")
    folder = written.write(tmp_path / "t-0")
    file, begin = next(folder.iterdir()), sum(map(len, written.batches[:batch]))
    whole = file.read_bytes()
    for at in range(len(written.batches[batch])):
        changed = bytearray(whole)
        changed[begin + at] ^= 0x41
        file.write_bytes(changed)
        if 12 <= at < 16:
            assert len(rows_of(opened(folder))) == 10
        elif at < 8 and batch == 4:
            continue
        else:
            with pytest.raises((CorruptError, UnsupportedError), match=f"{file}, byte"):
                opened(folder)


def test_a_damaged_batch_names_its_checksums(tmp_path: Path) -> None:
    written = simple(3)
    folder = written.write(tmp_path / "t-0")
    file = next(folder.iterdir())
    data = bytearray(file.read_bytes())
    begin = len(written.batches[0])
    data[begin + 70] ^= 1
    file.write_bytes(data)
    stored = int.from_bytes(written.batches[1][17:21])
    found = crc32c(bytes(data[begin + 21 : begin + len(written.batches[1])]))
    with pytest.raises(CorruptError) as error:
        opened(folder)
    for part in (str(file), f"byte {begin}:", f"{stored:#010x}", f"{found:#010x}"):
        assert part in str(error.value)


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_before_kafka_0_11_are_refused_by_name(tmp_path: Path, magic: int) -> None:
    body = bytes([magic, 0]) + (struct.pack(">q", START) if magic else b"") + struct.pack(">i1si1s", 1, b"k", 1, b"v")
    folder = tmp_path / "t-0"
    folder.mkdir()
    message = struct.pack(">I", zlib.crc32(body)) + body
    (folder / f"{0:020d}.log").write_bytes(struct.pack(">qi", 0, len(message)) + message * 1 + bytes(80))
    with pytest.raises(UnsupportedError, match=f"format {magic}") as error:
        opened(folder)
    assert error.value.code == ErrorCode.KAFKA_LOG_FORMAT


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_records_that_do_not_decompress_are_damage(tmp_path: Path, codec: str) -> None:
    """Under a right checksum: a forged or badly written batch."""
    good = compressed(codec, b"x" * 1000)
    for body in (b"", b"\x01", b"no such stream", good[:-9], good):
        folder = tmp_path / f"{codec}{len(body)}-0"
        folder.mkdir()
        data = batch_bytes([Logged(0, START, b"k", b"v")], codec=codec, records_bytes=body)
        (folder / f"{0:020d}.log").write_bytes(data)
        with pytest.raises(CorruptError, match="byte 0") as error:
            rows_of(opened(folder))
        assert error.value.code == ErrorCode.KAFKA_LOG


def test_an_unknown_compression_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    data = batch_bytes([Logged(0, START, b"k", b"v")], attributes=6)
    (folder / f"{0:020d}.log").write_bytes(data)
    with pytest.raises(UnsupportedError, match="compression 6"):
        rows_of(opened(folder))


def test_snappy_without_frames_is_read(tmp_path: Path) -> None:
    """Some clients write one bare block."""
    import pyarrow as pa
    from support.kafka.log_files import record_bytes

    record = Logged(0, START, b"k", b"v" * 50)
    folder = tmp_path / "t-0"
    folder.mkdir()
    body = pa.Codec("snappy").compress(record_bytes(record, 0, START), asbytes=True)
    (folder / f"{0:020d}.log").write_bytes(batch_bytes([record], codec="snappy", records_bytes=body))
    assert rows_of(opened(folder)) == [record.row()]


@pytest.mark.usefixtures("changelog_loops")
def test_forged_records_under_a_right_checksum_are_damage_or_records(tmp_path: Path) -> None:
    written = [Logged(n, START, b"k", b"v" * 5, (("h", b"x"),)) for n in range(3)]
    for seed in range(30):
        chance, body = random.Random(seed), bytearray(batch_bytes(written)[61:])
        for _ in range(chance.randrange(1, 4)):
            body[chance.randrange(len(body))] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        folder = tmp_path / str(seed) / "t-0"
        folder.mkdir(parents=True)
        (folder / f"{0:020d}.log").write_bytes(batch_bytes(written, records_bytes=bytes(body)))
        with named(seed):
            try:
                assert len(rows_of(opened(folder))) == 3
            except CorruptError as error:
                assert error.code == ErrorCode.KAFKA_LOG


def test_a_replaced_file_is_noticed(tmp_path: Path) -> None:
    folder = simple(3).write(tmp_path / "t-0")
    log = opened(folder)
    file = next(folder.iterdir())
    file.rename(tmp_path / "old")
    with pytest.raises(ConflictError, match="removed"):
        rows_of(log)
    file.write_bytes((tmp_path / "old").read_bytes())
    with pytest.raises(ConflictError, match="replaced"):
        rows_of(log)


def test_what_a_broker_appends_later_is_not_read(tmp_path: Path) -> None:
    written = simple(3)
    folder = written.write(tmp_path / "t-0")
    log = opened(folder)
    written.append([(START, b"k", b"v", ())])
    with next(folder.iterdir()).open("ab") as file:
        file.write(written.batches[-1])
    assert len(rows_of(log)) == 6 and len(rows_of(opened(folder))) == 7


def test_a_surveyed_log_travels_to_another_process(tmp_path: Path) -> None:
    """Tasks of Spark read what the driver surveyed."""
    written = random_log(5)
    log = opened(written.write(tmp_path / "t-0"))
    assert rows_of(pickle.loads(pickle.dumps(log))) == [record.row() for record in written.committed()]


def test_an_unknown_isolation_is_refused(tmp_path: Path) -> None:
    partition = log_partitions(simple(1).write(tmp_path / "t-0"))[0]
    with pytest.raises(InvalidInputError, match="read_committed"):
        open_log(partition, "all")  # type: ignore[arg-type]
