"""Faults of a proxy before an object store, decided by their numbers alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from support.object_stores.requests_seen import ANSWERED, CUT, DROPPED, LOST, REFUSED

Concerns = Callable[[str, str], bool]


def every_request(method: str, path: str) -> bool:
    """Concern every request."""
    return True


def puts(method: str, path: str) -> bool:
    """Concern requests that write an object."""
    return method == "PUT"


def reads(method: str, path: str) -> bool:
    """Concern requests that read an object or list some."""
    return method == "GET"


@dataclass(frozen=True)
class Faults:
    """Faults of the requests that ``concerns`` (method, path with query) returns true for; others pass.

    ``…_every`` N strikes one of each N of these, 1 all, 0 none: the last one with ``seed`` 0, else one drawn by it.
    At most ``most`` requests are struck, without counting delays. What comes first in this list prevails:

    - ``drop_every``: the connection is closed, and the server sees nothing of the request
    - ``refuse_every``: the proxy answers ``status``, and the server sees nothing of the request
    - ``lose_every``: the server has done what was asked, then the connection is closed without an answer
    - ``cut_every``: the connection is closed after half of the answer's body
    - ``latency_ms``: the server has done what was asked, then each answer comes so much later, or, with
      ``delay_every``, one of N

    ``reset``: closed connections are reset (RST), as by a server that is gone, instead of ended (FIN).
    """

    latency_ms: float = 0
    delay_every: int = 1
    drop_every: int = 0
    refuse_every: int = 0
    status: int = 503
    lose_every: int = 0
    cut_every: int = 0
    reset: bool = False
    seed: int = 0
    most: int | None = None
    concerns: Concerns = every_request

    def fate(self, number: int) -> str:
        """Return the fate of the request with this number, from 0, of those that are concerned."""
        ways = {DROPPED: self.drop_every, REFUSED: self.refuse_every, LOST: self.lose_every, CUT: self.cut_every}
        return next((fate for fate, every in ways.items() if self._strikes(fate, every, number)), ANSWERED)

    def delay_s(self, number: int) -> float:
        """How long the answer to this request is held back, in seconds."""
        return self.latency_ms / 1000 if self._strikes("delayed", self.delay_every, number) else 0

    def _strikes(self, way: str, every: int, number: int) -> bool:
        if every <= 0:
            return False
        stretch, place = divmod(number, every)
        struck = random.Random(f"{self.seed} {way} {stretch}").randrange(every) if self.seed else every - 1
        return place == struck
