"""A server as a process of its own on a port of the loopback interface.

The kernel ends it with the thread that started it, so it cannot outlive the tests, even when they are killed.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"
PATIENCE_S = 60
STARTS = 5
# Below those that the kernel gives to connections, so that a killed server finds its port again.
PORTS = range(15_000, 32_000)
# Between the fork and the program, in an interpreter of its own: a process with threads must not run Python there.
_ENDS_WITH_ITS_PARENT = """
import ctypes, os, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
if os.getppid() != int(sys.argv[1]):
    sys.exit("its parent is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True)
class ServerProcess:
    """A running server; ``log`` is a file with its output."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        """End the server with SIGKILL; return when it is gone."""
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        """Stop the server: it accepts connections and answers nothing until `resume`."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused server go on."""
        self.process.send_signal(signal.SIGCONT)


def started(command: Callable[[int], Sequence[str]], log: Path, port: int = 0) -> ServerProcess:
    """Start the server whose command for a port is given; return when it accepts connections.

    Port 0 is a free one, another one is tried for a while. Raises AssertionError with the end of the server's output.
    """
    for start in range(STARTS):
        found = ServerProcess(_popen(command(chosen := port or _free_port()), log), chosen, log)
        if _accepts(found):
            return found
        found.kill()
        time.sleep(0.1 * 2**start)  # another process may have taken the port between its choice and its use
    raise AssertionError(f"the server did not start; its output ends:\n{log.read_text(errors='replace')[-3000:]}")


def _popen(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    starter = [sys.executable, "-I", "-S", "-c", _ENDS_WITH_ITS_PARENT, str(os.getpid()), *command]
    with log.open("ab") as output:
        return subprocess.Popen(starter, cwd=log.parent, stdin=subprocess.DEVNULL, stdout=output, stderr=output)


def _accepts(server: ServerProcess) -> bool:
    end = time.monotonic() + PATIENCE_S
    while server.process.poll() is None and time.monotonic() < end:
        try:
            socket.create_connection((HOST, server.port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return server.process.poll() is None
    return False


def _free_port() -> int:
    while True:
        port = random.SystemRandom().choice(PORTS)  # tests seed the other generator, alike in each process
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return port
