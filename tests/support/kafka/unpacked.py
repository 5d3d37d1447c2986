"""State directories and brokers' logs of the three real applications, as files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from support.kafka.applications import unpacked
from support.kafka.real_applications import application, form_of


def unpack(name: str, folder: Path) -> Path:
    """Copy an application's unpacked archive; returns its folder, with ``state/<id>`` and the like in it."""
    return Path(shutil.copytree(unpacked(name), folder / name))


def stores_file(name: str, file: Path, *, everything: bool = False, only: str | None = None) -> Path:
    """Write what is true of an application's stores as the TOML file that users write: those on disk, all, or one."""
    stores = [store for store in application(name).stores() if only in (None, store["name"])]
    return write_stores_file(stores, file, everything=everything)


def write_stores_file(stores: list[dict[str, Any]], file: Path, *, everything: bool = False) -> Path:
    """Write what is true of stores as the TOML file that users write: those on disk, or all."""
    lines = []
    for store in stores:
        if not (everything or is_on_disk(store)):
            continue
        form = form_of(store)
        lines += [f'[stores."{store["name"]}"]', f'kind = "{form.kind}"']
        lines += [f'key_serde = "{form.key_serde}"', f'value_serde = "{form.value_serde}"']
        lines += [f"window_size = {form.window_size}"] if form.window_size else []
        retention = store.get("retention_ms") or store.get("history_retention_ms")
        lines += [f"retention = {retention}"] if retention else []
    file.write_text("\n".join(lines))
    return file


def is_on_disk(store: dict[str, Any]) -> bool:
    """Return whether a store has files: those in memory and suppression buffers have none."""
    return store["kind"] not in ("in-memory-key-value", "suppression-buffer")
