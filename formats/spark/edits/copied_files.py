"""The files of a checkpoint that a copy of it takes over, and those that name the folder in which they lie.

Operator metadata of version 2 names schema files by the URI that they had when Spark wrote it. A query that starts from
a copy would read the schemas of the source through it, and write folders there. So a copy gets its own URIs.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from statestore.formats.edits import CopiedFile
from statestore.formats.errors import InvalidInputError
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.folder import Folder
from statestore.formats.places.listings import EntryKind
from statestore.formats.places.locations import AZURE, LOCAL_SCHEME, OBJECT_SCHEMES, Location, parse_location
from statestore.formats.spark.checkpoint.checkpoint_files import TABLES, data_files, parse_json, read_metadata
from statestore.formats.spark.checkpoint.crc_files import side_name
from statestore.formats.spark.checkpoint.query_metadata import operator_ids
from statestore.formats.spark.checkpoint.state_errors import corrupt_file, refused

_OF_STATE = re.compile(r"state/\d+/\d+(/[^/]+)?")
_TABLE = re.compile(rf"state/\d+/\d+/([^/]+/)?{TABLES}/[^/]+\.sst")
_SCHEMAS = "stateSchemaFilePaths"
_OF_HADOOP = {"s3": "s3a", "s3n": "s3a", "gcs": "gs"}
"""Hadoop's own schemes, for those that stand for the same stores."""
_CHECKSUMS = ".crc"  # behind a file's name: checksums that Spark 4.3 keeps of a whole file


def copied_files(root: Folder, version: int, written: Collection[str]) -> Iterator[CopiedFile]:
    """Yield the files that a copy has as they are: all but those in ``written``, by their paths below the root, and
    state of versions after ``version``, which is that of a batch that was not committed.

    A file that is left out takes the checksums beside it with it. Raises CorruptError SPARK_STATE_FILE for something
    that is neither file nor folder, InvalidInputError NO_ACCESS.
    """
    yield from _copied(root.fresh(), "", version, frozenset(written))


def _copied(folder: Folder, at: str, version: int, written: frozenset[str]) -> Iterator[CopiedFile]:
    later = set()
    if _OF_STATE.fullmatch(at):
        later = {file.name for file in data_files(folder) if file.version > version}
    hidden = _names(folder)
    for entry in folder.entries():
        name = entry.base_name
        path = posixpath.join(at, name)
        if entry.kind is EntryKind.FOLDER:
            yield from _copied(folder.at(name), path, version, written)
            continue
        if entry.kind is not EntryKind.FILE:
            raise corrupt_file(folder.at(name).path, "found something other than a file, or a link to nothing")
        owner = name.removesuffix(_CHECKSUMS)
        if {name, owner} & later or {path, path.removesuffix(_CHECKSUMS)} & written:
            continue
        # Spark gives each table file a name of its own, and only ever removes it.
        yield CopiedFile(folder, name, path, entry.size, immutable=_TABLE.fullmatch(path) is not None)
        if side_name(name) in hidden:
            yield CopiedFile(folder, side_name(name), posixpath.join(at, side_name(name)))


def _names(folder: Folder) -> Collection[str]:
    """The names in a local folder, with hidden ones; none elsewhere, where Hadoop keeps no checksums."""
    if not folder.is_local:
        return ()
    with disk_errors("list", folder.path):
        return frozenset(each.name for each in Path(folder.path).iterdir())


def stages(root: Folder, batch: int) -> list[list[str]]:
    """The logs of a copy whose newest committed batch is ``batch``, in the order of `EditPlan.stages`.

    A query goes on from the newest offsets, and does not start without those of the batch before them. So these two
    frame the others: what has not both is started by no query as if it were whole.
    """
    offsets = sorted({*root.at("offsets").numbered(), batch})
    commits = sorted({*root.at("commits").numbered(), batch})
    newest = [f"offsets/{number}" for number in offsets[-1:]]
    before = [f"offsets/{number}" for number in offsets[-2:-1]]
    older = [f"offsets/{number}" for number in offsets[:-2]]
    first = ["metadata", *(f"commits/{number}" for number in commits)]
    return [each for each in (first, newest, older, before) if each]


def metadata_paths(root: Folder) -> list[str]:
    """The paths below the root of the files that hold URIs of the checkpoint."""
    places = {
        f"state/{number}/_metadata/v2": root.at("state", number, "_metadata", "v2") for number in operator_ids(root)
    }
    return [f"{place}/{number}" for place, folder in places.items() for number in folder.numbered()]


def moved_metadata(root: Folder, path: str, target: str) -> bytes:
    """The bytes of a file of `metadata_paths` in a checkpoint at ``target``.

    Raises CorruptError SPARK_STATE_FILE for a URI that is not one of the operator's schema files.
    """
    folder = root.at(*posixpath.dirname(path).split("/"))
    name = posixpath.basename(path)
    content, where = read_metadata(folder, name), folder.at(name).path
    version, _, text = content.decode("utf-8", "replace").partition("\n")
    document = parse_json(text, where)
    operator = "/".join(path.split("/")[:2])
    try:
        moved = False
        for store in document["stateStoreInfo"]:
            paths = store.get("stateSchemaFilePaths") or []
            if paths:
                store["stateSchemaFilePaths"] = [
                    _moved(str(each), f"/{operator}/_stateSchema/", target) for each in paths
                ]
                moved = True
    except InvalidInputError:  # of the target, not of the file
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise corrupt_file(where, f"expected stateStoreInfo with paths below {operator}/_stateSchema") from error
    return (
        f"{version}\n{json.dumps(document, separators=(',', ':'), ensure_ascii=False)}".encode() if moved else content
    )


def _moved(uri: str, inside: str, target: str) -> str:
    before, found, name = uri.rpartition(inside)
    if not found:
        raise ValueError(uri)
    return f"{_address(parse_location(target), before)}{inside}{name}"


def _address(location: Location, before: str) -> str:
    """The target as Hadoop writes it; in an object store with the scheme that the source has, such as s3a."""
    if location.is_local:
        return location.path if before.startswith("/") else f"{LOCAL_SCHEME}:{location.path}"
    if OBJECT_SCHEMES.get(location.scheme) == AZURE and "@" not in location.authority:
        raise refused(
            f"{location}: files of the checkpoint name its folder, which Hadoop knows in Azure by its account; name "
            "the target as abfss://container@account.dfs.core.windows.net/folder"
        )
    scheme = before.partition(":")[0]
    if OBJECT_SCHEMES.get(scheme) != OBJECT_SCHEMES.get(location.scheme):
        scheme = _OF_HADOOP.get(location.scheme, location.scheme)
    return f"{scheme}{str(location).removeprefix(location.scheme)}"
