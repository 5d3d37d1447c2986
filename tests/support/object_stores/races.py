"""Many writers that want to create the same objects, in threads and in processes."""

from __future__ import annotations

import multiprocessing
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from itertools import repeat

from obstore.exceptions import AlreadyExistsError

from support.object_stores.clients import Client

Wins = list[tuple[str, bytes]]


def create(store: Client, key: str, value: bytes) -> bool:
    """Create an object; return whether this call has made it. Other failures are raised."""
    try:
        store.put(key, value, mode="create", use_multipart=False)
    except AlreadyExistsError:
        return False
    return True


def won(store: Client, prefix: str, rounds: int, threads: int, who: str = "") -> Wins:
    """Let each thread try to create the object of each round, all at once; return what was created."""
    gate = threading.Barrier(threads)

    def race(thread: int) -> Wins:
        found = []
        for number in range(rounds):
            key, value = f"{prefix}/{number}", f"{who}-{thread}-{number}".encode()
            gate.wait()
            if create(store, key, value):
                found.append((key, value))
        return found

    with ThreadPoolExecutor(threads) as pool:
        return [each for wins in pool.map(race, range(threads)) for each in wins]


def won_by_processes(stores: Sequence[Client], prefix: str, rounds: int, threads: int) -> Wins:
    """Run the race by a process for each of the stores, which may be clients of several servers."""
    with ProcessPoolExecutor(len(stores), multiprocessing.get_context("spawn")) as pool:
        numbers = map(str, range(len(stores)))
        found = pool.map(won, stores, repeat(prefix), repeat(rounds), repeat(threads), numbers)
        return [each for wins in found for each in wins]


def wrong(store: Client, wins: Wins, prefix: str, rounds: int) -> list[str]:
    """Keys that not exactly one writer has created, or that hold what another one wrote."""
    winners = Counter(key for key, _ in wins)
    keys = {f"{prefix}/{number}" for number in range(rounds)}
    twice = [key for key in keys | winners.keys() if winners[key] != 1]
    return twice + [key for key, value in wins if bytes(store.get(key).bytes()) != value]
