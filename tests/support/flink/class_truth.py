"""Objects of the classes of ``WriteClasses``, which Flink's KryoSerializer wrote, and what is shown of each.

An object is {"object": its class, "fields": [[name, value], ...]}, with the fields of its superclasses behind its own.
"""

from __future__ import annotations

import json
import lzma
from functools import cache
from typing import Any

from statestore.formats.flink.flink_settings import settings_of
from statestore.formats.flink.serializers.flink_types import KryoOf
from statestore.formats.flink.serializers.job_classes import JobClass
from statestore.formats.flink.serializers.snapshots import read_snapshot
from statestore.formats.flink.snapshot.data_input import DataInput
from support.flink.kryo_truth import of_json
from support.paths import DATA

W = "WriteClasses$"
DECLARED = {
    "Color": "enum<RED, GREEN, BLUE>",
    "Size": "enum<S, M {}, L>",
    "Base": "class<int id, String name, long stamp>",
    "Item": f"""class<String name, int qty, double price, Integer boxed, Long big, List<String> tags,
        Map<String, Integer> counts, {W}Color color, {W}Size size, {W}Item parent, Object any, int[] numbers,
        String[] texts, UUID uuid, BigDecimal amount, LocalDate day, java.time.Instant at, boolean flag, byte tiny,
        char letter, short small, float ratio, Set<{W}Color> colors, Optional<String> maybe, Date date, Double score,
        Boolean sure> extends {W}Base""",
    "Open": """class<int n, String s, List<Integer> list, Map<Integer, List<String>> nested, Integer[] array, List raw,
        SortedMap<String, Long> sorted>""",
    "Point": "final class<int x, int y, String label>",
    "Poly": f"""class<List<{W}Point> points, {W}Point first, {W}Point[] array, Map<String, {W}Point> named,
        Map<{W}Point, String> byPoint, List<List<String>> lists, {W}Base[] bases, List<{W}Base> more,
        Map<String, List<Integer>> deep, List<? extends {W}Base> wild, int[][] grid, {W}Color[] palette,
        Collection<Long> longs>""",
    "Shape": "interface",
    "Circle": f"class<double r, {W}Color color>",
    "Square": f"class<double r, {W}Color color>",
    "Drawing": f"class<{W}Shape main, List<{W}Shape> shapes, Object any>",
    "Box<T>": "class<T value, int n>",
    "Boxes": f"class<{W}Box<{W}Base> base, List<{W}Box<{W}Base>> list, Object any>",
    "Empty": "class<>",
    "Node": f"class<{W}Node next, int v, List<{W}Node> kids>",
    "Inner": "class<int v, String s>",
}
TIGHT = {"Tight": f"class<{W}Box<String> text, Object any>"}


def declared(given: dict[str, str]) -> tuple[JobClass, ...]:
    """The classes of these declarations."""
    return settings_of({"type": ";".join(f"class:{W}{name}={text}" for name, text in given.items())}).classes


@cache
def written(release: str) -> list[dict[str, Any]]:
    """The lines that ``WriteClasses`` wrote with a release of Flink."""
    octets = (DATA / "flink" / "kryo_classes.json.xz").read_bytes()
    found: dict[str, list[dict[str, Any]]] = json.loads(lzma.decompress(octets))
    return found[release]


def kind_of(release: str, name: str, classes: tuple[JobClass, ...]) -> KryoOf:
    """The type of the serializer with a name."""
    (snapshot,) = (line["snapshot"] for line in written(release) if line["class"] == name and "snapshot" in line)
    found = read_snapshot(DataInput(bytes.fromhex(snapshot), "a snapshot"))
    assert isinstance(found, KryoOf)
    return KryoOf(found.serializer, found.class_name, None, found.registrations, release < "2", classes=classes)


def values(release: str, name: str) -> list[tuple[bytes, Any]]:
    """The bytes and the truth of all values of a serializer."""
    lines = [line for line in written(release) if line["class"] == name and "value" in line]
    return [(bytes.fromhex(line["bytes"]), line["value"]) for line in lines]


def cycles(release: str) -> list[bytes]:
    """The bytes of objects that contain themselves."""
    lines = [line for line in written(release) if "bytes" in line and "value" not in line]
    return [bytes.fromhex(line["bytes"]) for line in lines]


def fields_of(truth: Any) -> list[tuple[str, Any]]:
    """The fields of an object as they are shown, in no order: a hidden one has the name of its class."""
    found: dict[str, Any] = {}
    for name, value in truth["fields"]:
        found[name if name not in found else f"Base.{name}"] = value
    return list(found.items())


def object_json(truth: Any) -> Any:
    """The parsed JSON of a value, as `of_json` has it."""
    if isinstance(truth, list):
        return [object_json(each) for each in truth]
    if not isinstance(truth, dict):
        return of_json(truth)
    if "map" in truth:
        pairs = truth["map"]
        if all(isinstance(key, str) for key, _ in pairs):
            return {key: object_json(each) for key, each in pairs}
        return [{"key": object_json(key), "value": object_json(each)} for key, each in pairs]
    if "object" not in truth:
        return of_json(truth)
    fields = {name: object_json(value) for name, value in fields_of(truth)}
    order = sorted(fields, key=lambda name: (name.removeprefix("Base."), name.startswith("Base.")))
    return {"class": truth["object"], **{name: fields[name] for name in order}}
