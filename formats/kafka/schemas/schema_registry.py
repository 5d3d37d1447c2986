"""Schemas from a schema registry, by Confluent's REST interface.

    GET /schemas/ids/{id}                         {"schema": TEXT, "schemaType": TYPE, "references": [...]}
    GET /subjects/{subject}/versions/{version}    the same, for each reference {"name", "subject", "version"}

A URL that ends in /apis/registry/v2 or v3 is that of Apicurio's own interface, which answers with the schema alone. An
id is a content id in v3 and a global id in v2, as their serializers write it, unless the URL itself ends in one of:

    GET /ids/contentIds/{id}      GET /ids/contentIds/{id}/references
    GET /ids/globalIds/{id}       GET /ids/globalIds/{id}/references
    GET /groups/{group}/artifacts/{artifact}/versions/{version}/content (v3), and .../references

An id never gets another schema, so what was fetched is kept. A context of Confluent's registry is part of the URL:
``http://HOST/contexts/.NAME``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown
from statestore.formats.kafka.schemas.registry_requests import Registry, answer_to, fail, public_url, registry_at
from statestore.formats.kafka.schemas.schema_ids import APICURIO, CONFLUENT, IdForm
from statestore.formats.values.expansion import parse_json

_MOST_REFERENCES = 100
_OF_APICURIO = re.compile(r"/apis/registry/v(?P<release>[0-9])(?P<ids>/ids/(?:content|global)Ids)?$")
_MOST_KEPT = 1000

_kept: dict[tuple[str, str, int], tuple[str, tuple[str, ...]]] = {}
"""(type, schema) by URL, form of ids, and id."""


def fetch_schema(url: str, number: int, kind: str, ids: IdForm = CONFLUENT) -> tuple[str, ...]:
    """The schema with an id: first those that it refers to, at last its own. ``kind`` is the type that it must have.

    Raises InvalidInputError WRONG_SCHEMA for an unknown id or another type, StorageError REGISTRY_FAILED.
    """
    key = url, ids.suffix, number
    if key not in _kept:
        registry, what = registry_at(url), f"schema id {number}"
        if ids is APICURIO or _OF_APICURIO.search(registry.base) is not None:
            found = kind, _of_apicurio(registry, number, what)
        else:
            entry = _entry(registry, f"/schemas/ids/{number}", what)
            references: dict[tuple[str, int], str] = {}
            _collect(registry, entry, references, 0)
            found = entry.get("schemaType") or "AVRO", (*references.values(), entry["schema"])
        if len(_kept) >= _MOST_KEPT:
            _kept.pop(next(iter(_kept)))
        _kept[key] = found
    is_kind, texts = _kept[key]
    if is_kind != kind:
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA,
            f"{public_url(url)}: schema id {number} is of type {shown(is_kind)}, expected {kind}; name another serde",
        )
    return texts


def _collect(registry: Registry, entry: Mapping[str, Any], into: dict[tuple[str, int], str], depth: int) -> None:
    """Add the schemas to which an entry refers, each after those to which it refers itself."""
    for reference in entry.get("references") or ():
        subject, version = reference["subject"], reference["version"]
        if (subject, version) in into:
            continue
        if depth >= _MOST_REFERENCES or len(into) >= _MOST_REFERENCES:
            fail(registry, f"found more than {_MOST_REFERENCES} references of a schema")
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
        found = _entry(registry, path, f"version {version} of subject {subject!r}")
        _collect(registry, found, into, depth + 1)
        into[(subject, version)] = found["schema"]


def _entry(registry: Registry, path: str, what: str) -> dict[str, Any]:
    data = answer_to(registry, path, what)
    try:
        found = parse_json(data)
    except ValueError:
        found = None
    if not _is_entry(found):
        fail(registry, f"answers for {what} with {shown(data[:80])}, expected JSON with a schema as text")
    entry: dict[str, Any] = found
    return entry


def _of_apicurio(registry: Registry, number: int, what: str) -> tuple[str, ...]:
    """The schema of an id by Apicurio's own interface: first those that it refers to, at last its own."""
    own = _OF_APICURIO.search(registry.base)
    is_third = own is not None and own["release"] == "3"
    ids = (own and own["ids"]) or ("/ids/contentIds" if is_third else "/ids/globalIds")
    registry.base = registry.base.removesuffix(ids)
    into: dict[str, str] = {}

    def collect(place: str, of_what: str, depth: int) -> None:
        for each in _apicurio_references(registry, place, of_what):
            names = [each["groupId"] or "default", each["artifactId"], each["version"]]
            version = "/groups/{}/artifacts/{}/versions/{}".format(*(quote(name, safe="") for name in names))
            if version in into:
                continue
            if depth >= _MOST_REFERENCES or len(into) >= _MOST_REFERENCES:
                fail(registry, f"found more than {_MOST_REFERENCES} references of a schema")
            told = f"version {shown(names[2], 80)} of artifact {shown(names[1])}"
            content = _text(registry, answer_to(registry, version + ("/content" if is_third else ""), told), told)
            collect(version, told, depth + 1)
            into[version] = content

    text = _text(registry, answer_to(registry, f"{ids}/{number}", what), what)
    collect(f"{ids}/{number}", what, 0)
    return (*into.values(), text)


def _apicurio_references(registry: Registry, place: str, what: str) -> list[dict[str, Any]]:
    told = f"references of {what}"
    try:
        data = answer_to(registry, f"{place}/references", told)
    except InvalidInputError:  # the first releases of v2 have no references
        return []
    try:
        found = parse_json(data)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(
        isinstance(each, dict)
        and isinstance(each.get("groupId"), str | None)
        and isinstance(each.get("artifactId"), str)
        and isinstance(each.get("version"), str)
        for each in found
    ):
        fail(registry, f"answers for {told} with {shown(data[:80])}, expected a JSON list of artifacts with versions")
    return found


def _text(registry: Registry, data: bytes, what: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        fail(registry, f"answers for {what} with {shown(data[:80])}, expected the text of a schema")


def _is_entry(found: Any) -> bool:
    if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
        return False
    references = found.get("references") or []
    return isinstance(references, list) and all(
        isinstance(each, dict) and isinstance(each.get("subject"), str) and type(each.get("version")) is int
        for each in references
    )
