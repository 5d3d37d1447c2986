"""Processes that kill themselves in the middle of a commit and a compaction: `dying_process.py FIRST STEP COPY...`.

For each copy of one warehouse a child is forked that dies (SIGKILL) before its n-th call that changes the file system,
n = FIRST, FIRST + STEP, …. Prints per copy whether the child survived. Started by test_crash; imports are paid once.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import statestore
from support.stores.versioned_checks import Put

PUTS: list[Put] = [("d", 10, 13), ("a", None, 14), ("b", 11, 6)]
CHANGING = ("link", "unlink", "fsync", "writev", "mkdir", "rename", "ftruncate")


def operate(root: str, die_at: int) -> None:
    """Open the store (adopting what another process left), acknowledge puts, commit and compact."""
    calls = 0

    def dying(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return counted

    for name in CHANGING:
        setattr(os, name, dying(getattr(os, name)))
    with statestore.connect(root).open_store("s", auto_compact=False) as store:
        for number, (key, value, time) in enumerate(PUTS, 1):
            store.put(key, value, timestamp=time)
            os.write(1, f"{number}".encode())
        store.commit()
        os.write(1, b"c")
        store.compact(full=True)


def main(first: int, step: int, copies: list[str]) -> None:
    for number, copy in enumerate(copies):
        child = os.fork()
        if child == 0:
            operate(copy, first + number * step)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        os.write(1, b" survived\n" if status == 0 else b" %d\n" % os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
