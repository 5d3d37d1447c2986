"""Failures of a hot tier. It is a cache, so no failure reaches a user while the tier can be recreated."""

from __future__ import annotations

from statestore.formats.errors import StorageError
from statestore.formats.places.disk_errors import storage_error
from statestore.formats.rocksdb.rocksdb_errors import system_error


class TierBrokenError(Exception):
    """The tier cannot be used; it has to be reopened or recreated. The error never leaves the package.

    ``refusal`` is the error of the system; None if the tier's files are damaged.
    """

    def __init__(self, text: str, refusal: OSError | None = None) -> None:
        super().__init__(text)
        self.refusal = refusal

    @property
    def damaged(self) -> bool:
        return self.refusal is None

    def as_storage_error(self, path: object) -> StorageError:
        """Return the error for the user, when recreating the tier has failed, too."""
        refusal = self.refusal or OSError(5, str(self))
        return storage_error(OSError(refusal.errno, f"{refusal.strerror} ({self})"), "open the hot tier", path)


def broken(error: BaseException) -> TierBrokenError:
    """Return an exception of rocksdict or of the system as a TierBrokenError."""
    return error if isinstance(error, TierBrokenError) else TierBrokenError(str(error), system_error(error))
