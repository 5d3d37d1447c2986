"""Reading and replaying the changelog of a Kafka Streams store from a broker's segment files. Prints JSON lines.

    python benchmarks/engines/kafka_changelog.py            5 million records
    python benchmarks/engines/kafka_changelog.py --quick    a tenth of them

One partition of up to a million keys, some of them hot (Zipf), with 3 % deletes, in batches of 200 records. Each figure
is the least of the runs. ``ratio`` is the time over that of reading the file's bytes, in the same run. A survey
verifies all checksums; the others are measured with it. ``records_per_s`` is for orientation.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import struct
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.formats.kafka.changelog_at import replayed
from statestore.formats.kafka.changelogs.record_history import changes, history
from statestore.formats.kafka.changelogs.record_log import LogMoment
from statestore.formats.kafka.changelogs.version_history import VersionedRules, versions
from statestore.formats.kafka.logs.log_directory import LogPartition, log_partitions
from statestore.formats.kafka.logs.log_reading import log_records, open_log
from statestore.formats.kernels.checksum_kernels import crc32c

RECORDS, KEYS, BATCH = 5_000_000, 1_000_000, 200
CODECS = {"none": 0, "lz4": 3, "zstd": 4}
START = 1_700_000_000_000
DELETED = 0.03


def report(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def varint(number: int) -> bytes:
    number <<= 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


SMALL = [varint(number) for number in range(512)]


def write_log(folder: Path, records: int, codec: str) -> LogPartition:
    """Write the segment file of a partition."""
    random = np.random.default_rng(3)
    keys = (random.zipf(1.2, records) % KEYS).tolist()
    gone = (random.random(records) < DELETED).tolist()
    folder.mkdir()
    with (folder / f"{0:020d}.log").open("wb") as file:
        for base in range(0, records, BATCH):
            parts: list[bytes] = []
            for number in range(BATCH):
                value = b"\x01" if gone[base + number] else b"\x34value-%020d" % (base + number)
                body = b"\x00" + SMALL[number] * 2 + b"\x18key-%08d" % keys[base + number] + value + b"\x00"
                parts += (SMALL[len(body)], body)
            data = b"".join(parts)
            if codec != "none":
                data = pa.Codec(codec).compress(data, asbytes=True)
            first = START + base
            rest = struct.pack(
                ">hiqqqhii", CODECS[codec], BATCH - 1, first, first + BATCH - 1, -1, -1, -1, BATCH
            )  # fmt: skip
            rest += data
            checksum = int(crc32c(np.frombuffer(rest, np.uint8), 0, len(rest)))
            file.write(struct.pack(">qiibI", base, len(rest) + 9, 0, 2, checksum) + rest)
    return log_partitions(folder)[0]


def raw_bytes(partition: LogPartition) -> int:
    total, room = 0, bytearray(4 << 20)
    for name in partition.segments:
        with Path(partition.folder, name).open("rb", buffering=0) as file:
            while count := file.readinto(room):
                total += count
    return total


def rows(batches: Any) -> int:
    return sum(batch.num_rows for batch in batches)


def measures(partition: LogPartition, records: int) -> dict[str, Callable[[], int]]:
    half = LogMoment({0: records // 2})
    return {
        "survey": lambda: open_log(partition).findings.next_offset,
        "records": lambda: rows(log_records(partition.folder)),
        "replay": lambda: rows(replayed([open_log(partition)])),
        "replay of half": lambda: rows(replayed([open_log(partition)], half)),
        "history": lambda: rows(history([open_log(partition)])),
        "changes": lambda: rows(changes([open_log(partition)])),
        "versions": lambda: rows(versions([open_log(partition)], VersionedRules(3_600_000))),
    }


def seconds(run: Callable[[], int]) -> tuple[float, int]:
    begin = time.perf_counter()
    found = run()
    return time.perf_counter() - begin, found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--quick", action="store_true")
    arguments.add_argument("--runs", type=int, default=3)
    given = arguments.parse_args()
    records = RECORDS // 10 if given.quick else RECORDS
    folder = Path(tempfile.mkdtemp(prefix="statestore-kafka-changelog-"))
    try:
        for codec in CODECS:
            partition = write_log(folder / f"{codec}-0", records, codec)
            size = raw_bytes(partition)
            report(codec=codec, records=records, megabytes=size >> 20)
            for name, run in measures(partition, records).items():
                rounds = [(seconds(partial(raw_bytes, partition))[0], *seconds(run)) for _ in range(given.runs)]
                raw, least = min(each[0] for each in rounds), min(each[1] for each in rounds)
                report(
                    codec=codec,
                    measure=name,
                    rows=rounds[0][2],
                    ratio=round(least / raw, 1),
                    records_per_s=round(records / least, -4),
                    peak_megabytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
                )
            shutil.rmtree(partition.folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
