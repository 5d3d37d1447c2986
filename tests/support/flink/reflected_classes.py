"""Classes as Java's reflection has them, which ``tests/engines/flink/classes/src/PrintClasses.java`` prints.

``tests/data/flink/job-classes.tar.xz`` holds a jar of classes of many forms, with that truth.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from statestore.formats.flink.java_classes.class_file import ClassFile
from statestore.formats.flink.java_classes.class_signatures import WILD
from statestore.formats.flink.java_classes.job_code import described
from statestore.formats.flink.serializers.job_classes import JavaType
from support.archives import unpacked
from support.paths import DATA

BOUND_UNKNOWN = "*"


def job_jar() -> Path:
    """The jar."""
    return unpacked(DATA / "flink" / "job-classes.tar.xz") / "job.jar"


def truth_of_jar() -> dict[str, dict[str, Any]]:
    """The truth by the names of the jar's classes."""
    lines = (job_jar().parent / "truth.jsonl").read_text().splitlines()
    return {each["name"]: each for each in map(json.loads, lines)}


def as_reflected(file: ClassFile) -> dict[str, Any]:
    """What a class file says, in the form of the truth; ``constants`` are None where they are not known for sure."""
    found = described(file)
    known = {} if found is None else {
        "fields": [[each.name, _shown(each.type), each.is_synthetic] for each in found.fields],
        "superclass": found.superclass,
        "arguments": [_shown(each, inside=True) for each in found.superclass_arguments],
        "parameters": list(found.parameters),
        "final": found.is_final,
        "abstract": found.is_abstract,
        "record": found.is_record,
        "constants": None if found.constants is None else list(found.constants),
    }  # fmt: skip
    return {"name": file.name, "interfaces": list(file.interfaces), **known}


def differences(files: Iterable[ClassFile], truth: dict[str, dict[str, Any]]) -> list[tuple[Any, Any]]:
    """What class files say, and the truth, of classes where these differ."""
    found = []
    for file in files:
        own, other = as_reflected(file), dict(truth[file.name])
        if other["constants"] == "failed":  # reflection could not run its code
            del own["constants"], other["constants"]
        if other["abstract"] and not other["superclass"]:  # of an interface
            own["superclass"] = ""
        if own != other:
            found.append((own, other))
    return found


def _shown(kind: JavaType, *, inside: bool = False) -> list[Any]:
    name = BOUND_UNKNOWN if kind.variable not in ("", WILD) and inside else kind.name
    return [name, kind.dimensions, [_shown(each, inside=True) for each in kind.arguments], kind.variable]
