"""A process that kills itself before or after one of its requests to an object store, in any thread."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import obstore


def die_at_request(last: int, *names: str) -> Callable[[], int]:
    """Kill this process at the ``last``-th step, which is before or after a request of the kinds ``names``.

    Return what tells the number of steps until now.
    """
    steps, lock = 0, threading.Lock()

    def step() -> None:
        nonlocal steps
        with lock:
            steps += 1
            if steps == last:
                os.kill(os.getpid(), signal.SIGKILL)

    def around(request: Any) -> Any:
        def requested(*given: Any, **options: Any) -> Any:
            step()
            answer = request(*given, **options)
            step()
            return answer

        return requested

    for name in names:
        setattr(obstore, name, around(getattr(obstore, name)))
    return lambda: steps
