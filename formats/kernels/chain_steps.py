"""Loops over chains: lists of pieces that are added to, cleared, and moved behind one another, as windows are merged.

A chain has a number, ``head`` and ``tail`` are its first and last piece, -1 where it has none, and ``following`` is the
piece behind each piece. Two buffers hold the bytes of pieces: number p is ``start[p]`` of the first, or of the second
from ``len(start)`` on. ``chain_kernels`` compiles these loops; few changes are replayed without.
"""

from __future__ import annotations

from statestore.formats.kernels.arrays import Bools, Bytes, Ints


def replay_chains(
    chain: Ints,
    clears: Bools,
    pieces: Ints,
    sources: Ints,
    source: Ints,
    is_list: bool,
    head: Ints,
    tail: Ints,
    following: Ints,
    is_unknown: Bools,
) -> None:
    """Carry out changes in order. Change i clears its chain if ``clears[i]``, then adds pieces ``pieces[i]`` to before
    ``pieces[i + 1]`` to it, and then moves there what chains ``source[sources[i]]`` to before ``sources[i + 1]`` have.

    Without ``is_list``, chains are values. One that is merged of several values ``is_unknown``.
    """
    for i in range(len(chain)):
        mine = chain[i]
        if clears[i]:
            head[mine] = tail[mine] = -1
            is_unknown[mine] = False
        for piece in range(pieces[i], pieces[i + 1]):
            if head[mine] < 0:
                head[mine] = piece
            else:
                following[tail[mine]] = piece
            tail[mine] = piece
        if sources[i] == sources[i + 1]:
            continue
        # What is moved hangs together first: the target may be among the sources, and each source there twice.
        first, last, values, strange = -1, -1, 0, False
        if head[mine] >= 0:
            values = 1
        for place in range(sources[i], sources[i + 1]):
            other = source[place]
            strange = strange or is_unknown[other]
            is_unknown[other] = False
            if head[other] < 0:
                continue
            if other != mine:
                values += 1
            if first < 0:
                first = head[other]
            else:
                following[last] = head[other]
            last = tail[other]
            head[other] = tail[other] = -1
        if first >= 0:
            if head[mine] < 0:
                head[mine] = first
            else:
                following[tail[mine]] = first
            tail[mine] = last
        if not is_list and (values > 1 or strange):
            is_unknown[mine] = True
            if head[mine] >= 0:
                tail[mine] = head[mine]
                following[head[mine]] = -1


def measure_chains(head: Ints, following: Ints, size: Ints, size_behind: Ints, sizes: Ints) -> None:
    """Fill in the bytes of each chain, with one between two pieces."""
    for i in range(len(head)):
        piece, found = head[i], 0
        while piece >= 0:
            found += 1 + (size[piece] if piece < len(size) else size_behind[piece - len(size)])
            piece = following[piece]
        sizes[i] = max(found - 1, 0)


def copy_chains(
    head: Ints,
    following: Ints,
    data: Bytes,
    start: Ints,
    size: Ints,
    data_behind: Bytes,
    start_behind: Ints,
    size_behind: Ints,
    joiner: int,
    at: Ints,
    target: Bytes,
) -> None:
    """Write the pieces of each chain to where it belongs ``at``, with ``joiner`` between two. There is room for all."""
    for i in range(len(head)):
        piece, place = head[i], at[i]
        while piece >= 0:
            if piece < len(size):
                source, count = start[piece], size[piece]
                for k in range(count):
                    target[place + k] = data[source + k]
            else:
                source, count = start_behind[piece - len(size)], size_behind[piece - len(size)]
                for k in range(count):
                    target[place + k] = data_behind[source + k]
            place += count
            piece = following[piece]
            if piece >= 0:
                target[place] = joiner
                place += 1
