"""Maps of Flink SQL as bytes, with keys that may be null."""

from __future__ import annotations


def map_of_sql(*entries: tuple[str | None, int]) -> bytes:
    """The bytes of ``MapDataSerializer`` for a map of short texts to numbers, by Flink's ``BinaryMapData``."""
    nulls = sum(1 << number for number, (key, _) in enumerate(entries) if key is None).to_bytes(4, "little")
    texts = [b"" if key is None else key.encode() for key, _ in entries]
    slots = [
        bytes(8) if key is None else text.ljust(7, b"\0") + bytes([0x80 | len(text)])
        for (key, _), text in zip(entries, texts, strict=True)
    ]
    count = len(entries).to_bytes(4, "little")
    keys = count + nulls + b"".join(slots)
    numbers = b"".join(number.to_bytes(4, "little", signed=True) for _, number in entries)
    body = len(keys).to_bytes(4, "little") + keys + count + bytes(4) + numbers + bytes(len(numbers) % 8)
    return len(body).to_bytes(4, "big") + body
