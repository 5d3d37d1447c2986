"""Places where the file of a handle may lie.

Flink writes files of the folder of ``_metadata`` by their names, and others by the URIs that they had when it wrote
them. Snapshots are copied and moved, so a URI is first looked for beside ``_metadata`` as it is now.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from urllib.parse import unquote

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, shown
from statestore.formats.flink.snapshot.handles import FileHandle, RelativeHandle, SegmentHandle
from statestore.formats.flink.snapshot.snapshot_names import JOB, SAVEPOINT
from statestore.formats.places.folder import Folder
from statestore.formats.places.locations import ARROW_SCHEMES

StoredHandle = FileHandle | RelativeHandle | SegmentHandle

_CHANGES = "dstl"  # the folder of the changelogs of a job, below one that the job configures
_FOLDERS_OF_A_JOB = ("shared", "taskowned", _CHANGES)
_URI = re.compile(r"([a-zA-Z][\w+.-]*):(?://([^/]*))?(/.*)?", re.DOTALL)
_MOST_SEGMENTS = 256
_SCHEMES = {**ARROW_SCHEMES, "s3p": "s3", "wasb": "abfs", "wasbs": "abfs"}
"""Schemes of Flink's file systems, and pyarrow's for each. ``s3p`` is that of Presto, one of Flink's two for S3."""


def places(folder: Folder, handle: StoredHandle, *, outside: bool = False) -> list[str]:
    """Paths in the file system of ``folder``, which is that of ``_metadata``, in the order in which they are tried.

    On a local disk all of them are in the folder that has the job's folder, or below it. ``outside``: so is not the
    place that a URI itself names. In an object store they are in the bucket, over which Flink spreads the files of a
    job if it injects entropy into their names. Raises CorruptError FLINK_METADATA for a path that Flink does not write.
    """
    if isinstance(handle, RelativeHandle):
        if not _is_name(handle.path):
            raise _strange(folder, handle.path, "the name of a file in the folder of _metadata")
        return [posixpath.join(folder.path, handle.path)]
    scheme, authority, path = _parts(folder, handle.uri)
    written = _as_written(folder, scheme, authority, path)
    return list(dict.fromkeys(_moved(folder, path) + [each for each in written if outside or _is_inside(folder, each)]))


def places_outside(folder: Folder, handle: StoredHandle) -> list[str]:
    """The paths that `places` has only with ``outside``: a forged snapshot may name any file of the machine."""
    within = places(folder, handle)
    return [path for path in places(folder, handle, outside=True) if path not in within]


def _is_inside(folder: Folder, path: str) -> bool:
    if not folder.is_local:
        return True
    base = posixpath.dirname(posixpath.dirname(folder.path))
    return bool(base.strip("/")) and path.startswith(base + "/")


def _parts(folder: Folder, uri: str) -> tuple[str, str, str]:
    """Scheme ("" for a plain path), authority and path of a URI."""
    match = _URI.fullmatch(uri)
    scheme, authority, path = ("", "", uri) if match is None else (match[1].lower(), match[2] or "", match[3] or "")
    segments = path.split("/")
    if not path.startswith("/") or "\0" in uri or ".." in segments or ".." in unquote(path).split("/"):
        raise _strange(folder, uri, "the URI of a file")
    if len(segments) > _MOST_SEGMENTS or not _is_name(segments[-1]):
        raise _strange(folder, uri, "the URI of a file")
    return scheme, authority, path


def _moved(folder: Folder, path: str) -> list[str]:
    """Places beside ``_metadata`` as it is now, for a snapshot that was moved as a whole."""
    found = []
    job = posixpath.dirname(folder.path)
    for way in _spellings(path):
        segments = [segment for segment in way.split("/") if segment]
        anchor = _last(segments[:-1], lambda name: name in _FOLDERS_OF_A_JOB or name.startswith("chk-"))
        if anchor is not None:
            found.append(posixpath.join(job, *segments[anchor:]))
        # A job that was restored from another one's snapshot may still use files of that one.
        anchor = _last(segments[:-1], lambda name: bool(JOB.fullmatch(name) or SAVEPOINT.fullmatch(name)))
        if anchor is not None:
            found += [posixpath.join(base, *segments[anchor:]) for base in (posixpath.dirname(job), job)]
            if anchor and segments[anchor + 1] == _CHANGES:  # whose base folder lies beside the job's
                found.append(posixpath.join(posixpath.dirname(job), *segments[anchor - 1 :]))
        found.append(posixpath.join(folder.path, segments[-1]))
    return found


def _as_written(folder: Folder, scheme: str, authority: str, path: str) -> list[str]:
    """The place that the URI itself names, if it is in the same file system as the folder."""
    kind = folder.filesystem.type_name
    if folder.is_local:
        return _spellings(path) if scheme in ("", "file") else []
    if _SCHEMES.get(scheme) not in (kind, {"gcs": "gs"}.get(kind)):
        return []
    if kind in ("s3", "gcs", "abfs"):  # the path begins with the bucket, and other buckets are not read
        bucket = authority.partition("@")[0]
        return [bucket + path] if folder.path.partition("/")[0] == bucket else []
    return [path] if kind == "hdfs" else []


def _spellings(path: str) -> list[str]:
    """A path as it is and percent-decoded. Flink writes names as they are, other tools encode them."""
    return list(dict.fromkeys((path, unquote(path))))


def _last(segments: list[str], is_anchor: Callable[[str], bool]) -> int | None:
    return next((at for at in range(len(segments) - 1, -1, -1) if is_anchor(segments[at])), None)


def _is_name(name: str) -> bool:
    return bool(name) and name not in (".", "..") and "/" not in name and "\0" not in name


def _strange(folder: Folder, found: str, expected: str) -> CorruptError:
    return CorruptError(
        ErrorCode.FLINK_METADATA,
        f"{folder.path}/_metadata: found a handle with path {shown(found)}, expected {expected}; the metadata is "
        "damaged or was forged, restore it from a copy",
    )
