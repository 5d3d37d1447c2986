"""A digest of a folder: any file that is added, removed, renamed, resized or rewritten gives another one."""

from __future__ import annotations

import hashlib
from pathlib import Path


def tree_hash(folder: Path) -> str:
    """SHA-256 over the names, kinds, sizes and bytes of everything below ``folder``, hidden and empty files too."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder)).encode("utf-8", "surrogateescape")
        if path.is_symlink():
            kind, content = b"link", str(path.readlink()).encode("utf-8", "surrogateescape")
        elif path.is_dir():
            kind, content = b"folder", b""
        else:
            kind, content = b"file", path.read_bytes()
        digest.update(b"%d %s %s %d " % (len(name), name, kind, len(content)))
        digest.update(content)
    return digest.hexdigest()
