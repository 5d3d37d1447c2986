"""What goes wrong with a hot tier. It is a cache, so none of it reaches a user while the tier can be made anew."""

from __future__ import annotations

from statestore.formats.errors import StorageError
from statestore.formats.places.disk_errors import storage_error
from statestore.formats.rocksdb.native_errors import system_error


class TierBrokenError(Exception):
    """The tier cannot be used; it has to be opened again, or made anew. Never leaves the package.

    ``refusal`` is what the system refused, None where the tier's files are damaged.
    """

    def __init__(self, text: str, refusal: OSError | None = None) -> None:
        super().__init__(text)
        self.refusal = refusal

    @property
    def damaged(self) -> bool:
        return self.refusal is None

    def as_storage_error(self, path: object) -> StorageError:
        """For the user, when making the tier anew has failed, too."""
        refusal = self.refusal or OSError(5, str(self))
        return storage_error(OSError(refusal.errno, f"{refusal.strerror} ({self})"), "open the hot tier", path)


def broken(error: BaseException) -> TierBrokenError:
    """An exception of rocksdict or of the system as a TierBrokenError."""
    return error if isinstance(error, TierBrokenError) else TierBrokenError(str(error), system_error(error))
