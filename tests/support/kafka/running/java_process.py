"""A program in Java that answers commands, a line of JSON each (``JsonLines`` of ``tests/engines/kafka/application``).

It ends with its input, so it cannot outlive the tests, even when they are killed.
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import threading
from pathlib import Path
from typing import Any

from support.paths import TESTS

PROJECT = TESTS / "engines" / "kafka" / "application"
PATIENCE_S = 120
# A quick start counts for more than the code of the best compiler.
OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
LOGGING = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"


class JavaProcess:
    """A running program. ``ready`` is what it announced."""

    def __init__(self, class_path: str, folder: Path, main: str, *arguments: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._name, self._log = main, folder / f"{main}.log"
        command = ["java", *OPTIONS, LOGGING, f"-Djava.io.tmpdir={folder}", "-cp", class_path, main, *arguments]
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
            )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self.ready = self._answer("start")
        except BaseException:
            self.kill()
            raise

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, command: str, **fields: Any) -> Any:
        """The answer to a command."""
        sender = self._process.stdin
        assert sender is not None
        with contextlib.suppress(BrokenPipeError):  # the missing answer tells more
            sender.write(json.dumps({"command": command, **fields}) + "\n")
            sender.flush()
        return self._answer(command)

    def kill(self) -> None:
        """End the process with SIGKILL; return when it is gone."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _answer(self, command: str) -> Any:
        try:
            line = self._lines.get(timeout=PATIENCE_S)
        except queue.Empty:
            raise AssertionError(f"{self._name} did not answer {command} in {PATIENCE_S} s{self._said()}") from None
        assert line, f"{self._name} ended at {command}{self._said()}"
        assert line.startswith("{"), f"{self._name} crashed at {command}: {line}{self._said()}"
        found = json.loads(line)
        assert "error" not in found, f"{self._name} failed at {command}: {found['error']}{self._said()}"
        return found["answer"]

    def _said(self) -> str:
        return f"; its log ends:\n{self._log.read_text(errors='replace')[-3000:]}"
