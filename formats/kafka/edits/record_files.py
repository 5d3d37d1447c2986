"""The files of an edit: records of each topic as JSON lines, the program that produces them, and how it is run.

    <topic>.jsonl    {"partition": 0, "timestamp": 1714550400000, "key": "61", "value": null, "headers": []}

Keys, values and the values of headers are hexadecimal, as the reader of exported records expects them. There is no
offset: the broker gives it. The setting `records` names one more file, which has the records of all topics: each line
begins with ``"topic"`` there, and is else the same.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.bytes.byte_parts import Part, column_of_cells, hex_cells, joined_parts
from statestore.formats.edits import Target
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kafka.edits.edited_records import TopicRecords
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.durable_files import sync_path
from statestore.formats.places.locations import not_local, parse_location

PROGRAM, INSTRUCTIONS, SUFFIX = "produce.py", "README.md", ".jsonl"
RECORDS_FILE = "records"
"""The setting of an edit that names one file for the records of all topics."""
_BATCH_ROWS = 1 << 14
_EACH = 80  # bytes of a line besides the texts of its bytes


def record_file(topic: str) -> str:
    """The name of the file with the records of a topic."""
    return f"{topic}{SUFFIX}"


def line_bytes(records: pa.Table) -> int:
    """About how many bytes the file of these records has."""
    texts = sum(records.column(name).nbytes for name in ("key", "value", "headers"))
    return 2 * int(texts) + _EACH * len(records)


def write_records(topic: TopicRecords, target: Target) -> dict[str, int]:
    """Write the file of a topic; return its size by name."""
    name, size = record_file(topic.topic), 0
    with target.create(name) as file:
        for batch in topic.records.to_batches(_BATCH_ROWS):
            size += file.write(_lines(batch))
    return {name: size}


def records_path(text: str, source: str) -> str:
    """The path of the file that a setting names for the records of an edit of ``source``.

    Raises InvalidInputError TARGET_EXISTS where something is there or the file would be in the source, INVALID_OPTION
    without its folder, UnsupportedError UNSUPPORTED_PATH for one that is not local.
    """
    location = parse_location(text)
    if not location.is_local:
        raise not_local(location, f"the file of setting {RECORDS_FILE}")
    path = Path(location.path)
    if os.path.lexists(path):
        raise _exists(path)
    if path.suffix != SUFFIX or not path.parent.is_dir():
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION,
            f"setting {RECORDS_FILE} is {path}; expected the name of a new file that ends in {SUFFIX}, in a folder "
            "that exists and is not the target",
        )
    edited = parse_location(source)
    if edited.is_local and Path(os.path.realpath(path)).is_relative_to(os.path.realpath(edited.path)):
        raise InvalidInputError(
            ErrorCode.TARGET_EXISTS, f"setting {RECORDS_FILE} is {path}, which lies in {source}: nothing is written "
            "there; name a file elsewhere"
        )  # fmt: skip
    return str(path)


def _exists(path: Path) -> InvalidInputError:
    return InvalidInputError(
        ErrorCode.TARGET_EXISTS, f"setting {RECORDS_FILE} is {path}, which exists; name a file that does not"
    )


def write_records_file(topics: Sequence[TopicRecords], path: str) -> None:
    """Write the records of all topics to a file, which is there and durable in whole, or not at all.

    Raises InvalidInputError TARGET_EXISTS if something has its name by now, StorageError DISK_FAILED.
    """
    place = Path(path)
    made = place.with_name(f".{place.name}.{secrets.token_hex(8)}")
    with disk_errors("write", place):
        try:
            with made.open("xb") as file:
                for topic in topics:
                    for batch in topic.records.to_batches(_BATCH_ROWS):
                        file.write(_lines(batch, topic.topic))
                file.flush()
                os.fsync(file.fileno())
            os.link(made, place)  # unlike a rename it replaces nothing
        except FileExistsError:
            raise _exists(place) from None
        finally:
            with contextlib.suppress(FileNotFoundError):
                made.unlink()
        sync_path(str(place.parent))


def _lines(batch: pa.RecordBatch, topic: str | None = None) -> bytes:
    """The lines of records, as ``json.dumps`` writes them; with their ``topic`` where it is given."""
    parts: list[Part] = [] if topic is None else [f'{{"topic": {json.dumps(topic)}'.encode()]
    for name in ("partition", "timestamp"):
        numbers = batch.column(name).cast(pa.string())
        parts += [f'{", " if parts else "{"}"{name}": '.encode(), cells_of(numbers)]
    parts += [b', "key": "', hex_cells(cells_of(batch.column("key"))), b'", "value": ', _values(batch.column("value"))]
    parts += [b', "headers": ', _headers(batch.column("headers")), b"}\n"]
    data, _ = joined_parts(parts, len(batch)).content()
    return data.tobytes()


def _values(column: pa.Array) -> Cells:
    """Values in quotes, or null."""
    quoted = joined_parts([b'"', hex_cells(cells_of(column)), b'"'], len(column))
    texts = pc.if_else(column.is_valid(), column_of_cells(quoted), pa.scalar(b"null", pa.large_binary()))
    return cells_of(texts)


def _headers(column: pa.Array) -> Part:
    if not pc.any(pc.greater(pc.list_value_length(column), 0)).as_py():
        return b"[]"
    texts = [
        json.dumps([{"name": each["name"], "value": _hex(each["value"])} for each in headers])
        for headers in column.to_pylist()
    ]
    return cells_of(pa.array(texts, pa.string()))


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def write_instructions(page: str, target: Target) -> dict[str, int]:
    """Write the program and its instructions."""
    texts = {PROGRAM: program(), INSTRUCTIONS: page}
    for name, text in texts.items():
        with target.create(name) as file:
            file.write(text.encode())
    return {name: len(text.encode()) for name, text in texts.items()}


def program() -> str:
    """The text of the program that produces the records."""
    return (files(__package__) / "produce_records.py").read_text("utf-8")


def instructions(
    topics: Sequence[TopicRecords],
    ends: Mapping[str, Mapping[int, int]],
    notes: Sequence[str],
    brokers: str | None = None,
) -> str:
    """The page for who applies the edit.

    ``ends``: the offsets at which topics ended, where they are known. ``brokers``: where the edit itself produces.
    """
    listed = [
        f"- `{record_file(each.topic)}`: {len(each.records)} records for `{each.topic}`, {each.erased} of them deletes"
        for each in topics
    ] or ["- none: the edit changes nothing"]
    command = program_command(PROGRAM, "HOST:PORT", ends)
    return "\n".join(
        [
            "# Records that edit a Kafka Streams application's state",
            "",
            *listed,
            "",
            "Before:",
            "",
            *(f"- {note}" for note in notes),
            "",
            *(
                [f"The edit produces these records to {brokers}; notes in `edit.json` say if it has.", ""]
                if brokers
                else []
            ),
            f"{'If not' if brokers else 'Then'}, with `pip install confluent-kafka`, write all records in one "
            "transaction:",
            "",
            f"    {command}",
            "",
            "Settings of the client, such as those of TLS, are given as `--config FILE` with a `name=value` on a line.",
            "Each line of a file is one record: partition, timestamp (milliseconds) and headers as they are to be,",
            "key, value and values of headers in hexadecimal, `null` for a delete. kcat and the console producer set",
            "no timestamps, which are a part of the state of most stores, so do not use them for these files.",
            "",
            "Last, start the application.",
            "",
        ]
    )


def program_command(program: str, servers: str, ends: Mapping[str, Mapping[int, int]]) -> str:
    """The command that runs the program, which refuses topics that no longer end where they are to."""
    expected = [
        option
        for topic, offsets in sorted(ends.items())
        for option in ("--expect-end", f"{topic}={','.join(f'{at}:{end}' for at, end in sorted(offsets.items()))}")
    ]
    return " ".join([f"python {program} {servers}", *expected])
