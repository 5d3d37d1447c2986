"""Pieces of a large object on their way to an object store, which takes it in parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class UploadedPieces:
    """Pieces to iterate over once; ``sent`` is the number of their bytes so far.

    They end where making one raises, and ``failed`` is the error. So the upload is completed, to an object that nobody
    asked for: if it were aborted, parts that are under way could arrive later, and would stay in the bucket.
    """

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces
        self.sent = 0
        self.failed: BaseException | None = None

    def __iter__(self) -> Iterator[bytes]:
        try:
            for piece in self._pieces:
                self.sent += len(piece)
                yield piece
        except GeneratorExit:  # the upload failed
            raise
        except BaseException as error:
            self.failed = error
