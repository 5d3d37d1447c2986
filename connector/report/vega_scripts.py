"""The scripts of Vega that a page has inlined.

vl-convert puts them together with a compiler of JavaScript, which takes two seconds. They are the same for each version
of it, so they are kept in the user's cache, with a digest.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from functools import cache
from importlib.metadata import version
from pathlib import Path

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError
from statestore.formats.places.private_folders import private_folder

SNIPPET = "window.vegaEmbed = vegaEmbed;"


@cache
def vega_scripts() -> str:
    """Return the scripts. Raises NotFoundError REPORT_NOT_INSTALLED without the extra."""
    try:
        import vl_convert
    except ImportError:
        raise NotFoundError(
            ErrorCode.REPORT_NOT_INSTALLED,
            "the report needs the package vl-convert-python; type: pip install 'statestore[report]'",
        ) from None
    folder = private_folder("scripts")
    name = hashlib.sha256(f"{version('vl-convert-python')}\n{SNIPPET}".encode()).hexdigest()[:16]
    kept = None if folder is None else folder / f"vega-{name}.js"
    found = None if kept is None else _read(kept)
    if found is None:
        found = str(vl_convert.javascript_bundle(SNIPPET))
        if kept is not None:
            _keep(kept, found)
    return found


def _read(kept: Path) -> str | None:
    """Return scripts that were kept whole; None where there are none."""
    try:
        digest, _, content = kept.read_bytes().partition(b"\n")
    except OSError:
        return None
    return content.decode() if digest == _digest(content) else None


def _keep(kept: Path, scripts: str) -> None:
    """Keep scripts for later processes, where that is possible."""
    content = scripts.encode()
    partly = kept.with_name(f"{kept.name}.{os.getpid()}.tmp")
    with contextlib.suppress(OSError):
        partly.write_bytes(_digest(content) + b"\n" + content)
        partly.replace(kept)


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()
