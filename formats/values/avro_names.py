"""Names in schemas of Avro: full names of types, and the types that a name may stand for.

A name without a dot belongs to the namespace around it. So it stands for the type of that namespace, and only else for
one without a namespace, as ``org.apache.avro.Schema.Names`` finds it. Source: Avro's specification 1.12, "Names".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED = frozenset({"record", "error", "enum", "fixed"})


def full_name(definition: Mapping[str, Any], space: str) -> tuple[str, str] | None:
    """Return (full name, namespace) of a record, enum or fixed inside a namespace; None where it has no name.

    An empty ``namespace`` is none at all, not the one around it.
    """
    name = definition.get("name")
    if not isinstance(name, str):
        return None
    if "." in name:
        return name, name.rpartition(".")[0]
    own = definition.get("namespace", space)
    own = own if isinstance(own, str) else space
    return (f"{own}.{name}" if own else name), own


def candidates(name: str, space: str) -> tuple[str, ...]:
    """Return the full names of types that a name inside a namespace may stand for, the first choice first."""
    return (name,) if "." in name or not space else (f"{space}.{name}", name)
