"""The real stores and joins of Kafka Streams, asked through a small program (``tests/engines/kafka/semantics``)."""

from __future__ import annotations

import json
import subprocess
import tempfile
from types import TracebackType
from typing import Any

from support.kafka.running.java_process import OPTIONS
from support.paths import TESTS

PROJECT = TESTS / "engines" / "kafka" / "semantics"


class Oracle:
    """A running program. Each history is answered by stores or a topology of its own."""

    def __init__(self, class_path: str) -> None:
        # Java takes its folder of temporary files from no variable; its stores lie in memory with those of other tests.
        command = ["java", *OPTIONS, f"-Djava.io.tmpdir={tempfile.gettempdir()}", "-cp", class_path, "Oracle"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Oracle:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.communicate()

    def answers(self, history: dict[str, Any]) -> list[Any]:
        """The answer to each operation of a store, or the records that each input of a join emits."""
        sender, receiver = self._process.stdin, self._process.stdout
        assert sender is not None and receiver is not None
        sender.write(json.dumps(history) + "\n")
        sender.flush()
        line = receiver.readline()
        assert line, "the program has ended"
        found: list[Any] = json.loads(line)["answers"]
        return found
