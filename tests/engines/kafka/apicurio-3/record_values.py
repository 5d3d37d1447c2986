"""Record values of Apicurio 3 and answers of its registry: ``python record_values.py URL CLASS_PATH FILE``.

URL is that of a new registry (http://127.0.0.1:8080), CLASS_PATH that of ApicurioFrames and its jars.
"""

from __future__ import annotations

import json
import lzma
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

UNIT = {"type": "enum", "name": "Unit", "namespace": "shop", "symbols": ["KG", "G"]}
WEIGHT = {"type": "record", "name": "Weight", "namespace": "shop", "fields": [{"name": "unit", "type": "Unit"}]}
API, CONFLUENT = "/apis/registry/v3", "/apis/ccompat/v7"


def add(url: str, artifact: str, schema: Any, *references: str) -> dict[str, Any]:
    """Add a schema of a group; return its version with both ids."""
    refers = [{"groupId": "shop", "artifactId": each, "version": "1", "name": each} for each in references]
    content = {"content": json.dumps(schema), "contentType": "application/json", "references": refers}
    body = {"artifactId": artifact, "artifactType": "AVRO", "firstVersion": {"content": content}}
    place = f"{url}{API}/groups/shop/artifacts?ifExists=FIND_OR_CREATE_VERSION"
    request = urllib.request.Request(place, json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request) as answer:
        found: dict[str, Any] = json.load(answer)["version"]
    return found


def answer_to(url: str, path: str) -> str | int:
    """The text of an answer, or its status."""
    try:
        with urllib.request.urlopen(url + path) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return error.code


def main(url: str, class_path: str, file: str) -> None:
    """Write the file. What is added again takes a content id and no global id, so those of later ones differ."""
    for _ in range(4):
        add(url, "again", "string")
    add(url, "shop.Unit", UNIT)
    weight = add(url, "shop.Weight", WEIGHT, "shop.Unit")
    done = subprocess.run(
        ["java", "-cp", class_path, "ApicurioFrames", url + API], check=True, capture_output=True, text=True
    )
    values = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    numbers = range(1, 21)
    paths = [f"{API}/ids/{kind}Ids/{n}" for kind in ("content", "global") for n in numbers]
    paths += [f"{each}/references" for each in paths]
    paths += [f"{API}/groups/shop/artifacts/shop.Unit/versions/1/{end}" for end in ("content", "references")]
    paths += [f"{CONFLUENT}/schemas/ids/{n}" for n in numbers]
    paths += [f"{CONFLUENT}/subjects/shop.Unit/versions/1"]
    answers = {path: found for path in paths if not isinstance(found := answer_to(url, path), int)}
    ids = {"content": weight["contentId"], "global": weight["globalId"]}
    content = json.dumps({"values": values, "answers": answers, "weight": ids})
    Path(file).write_bytes(lzma.compress(content.encode(), preset=9))


main(*sys.argv[1:])
