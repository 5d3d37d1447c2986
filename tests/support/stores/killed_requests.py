"""The end of a process before one of its requests to an object store, in the test process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import obstore
import pytest

REQUESTS = ("put", "get", "head", "list", "delete")


class Killed(BaseException):
    """The end of the process: no error handler may do anything after it."""


@contextmanager
def requests_until(number: int) -> Iterator[list[str]]:
    """Die before the request with this number, from 1; yield the requests that were made."""
    made: list[str] = []

    def counted(name: str, send: Callable[..., Any]) -> Callable[..., Any]:
        def sending(*given: Any, **named: Any) -> Any:
            if len(made) + 1 >= number:
                raise Killed
            made.append(name)
            return send(*given, **named)

        return sending

    with pytest.MonkeyPatch.context() as patch:
        for name in REQUESTS:
            patch.setattr(obstore, name, counted(name, getattr(obstore, name)))
        yield made
