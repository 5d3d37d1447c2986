"""The log of one store as this process sees it: its newest state, leases on files, and whether the store is there."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Hashable, Iterator
from time import perf_counter_ns

from statestore.catalog.log.entries import entry_name
from statestore.catalog.log.leases import HELD, Lease, take_lease
from statestore.catalog.log.log_checkpoint import load_log_state
from statestore.catalog.log.log_names import STORE_FILE
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import Storage, local_root
from statestore.catalog.log.store_spec import StoreSpec, replaced, stored_identity
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, NotFoundError, StateStoreError, StorageError

Seen = tuple[LogState, Lease | None]

LOOK_NS = 1_000_000
NEVER = 1 << 63


class StoreLog:
    """The newest known state of a store's log, from which each look goes on. All handles of a process share it."""

    def __init__(self, storage: Storage, spec: StoreSpec) -> None:
        self.storage = storage
        self._spec = spec
        self._root = local_root(storage)
        self.known: LogState | None = None  # the newest state at the last look
        self._leases: weakref.WeakValueDictionary[int, Lease] = weakref.WeakValueDictionary()
        self._identity: Hashable = None  # state of the store's description at the last comparison of its identity
        # When a call for one key has to look again whether the store is there, by `perf_counter_ns`: a look at each
        # call would cost as much as the call. In an object store such calls look by their number.
        self.look_at = 0 if self._root is not None else NEVER
        self._settled = False

    def newest(self) -> LogState:
        """Return the log state of the newest commit. The log is checked once for further entries; none is read twice.

        Raises NotFoundError STORE_REPLACED if the store was dropped, or if another store has taken its place.
        """
        if self._root is not None:
            newest = self._load()
            self.check_identity()
            return newest
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as other:  # both at the same time
            checked = other.submit(self.check_identity)
            newest = self._load()
        checked.result()
        return newest

    def _load(self) -> LogState:
        try:
            newest = load_log_state(self.storage, base=self.known, store=self._spec.store_id)
        except (CorruptError, NotFoundError):
            self.check_identity()  # the log of a store that is being dropped has gaps, which are no damage
            raise
        self.known = newest
        return newest

    def leased(self, base: LogState | None = None, *, commits: bool = False, alone: bool = False) -> Seen:
        """Return the newest log state with a lease, which keeps its files from vacuum as long as the object exists.

        The lease is None where the storage has none (`statestore.catalog.log.leases`). ``base`` is a log state that the
        caller knows. ``commits``: the caller goes on to write an entry, whose guard looks whether the store was
        replaced, so in an object store that is not looked at here. ``alone``: it expects no other writer, so that in an
        object store no newer version is looked for; its entry cannot take the place of one.
        """
        root, known = self._root, self.known
        if base is not None and base.version >= 0 and (known is None or known.version < base.version):
            self.known = base
        if root is None:
            if alone and self.known is not None:
                return self.known, None
            return self._load() if commits else self.newest(), None
        log_state = self.newest()
        while True:
            lease = self._leases.get(log_state.version)
            if lease is None:
                lease = take_lease(root, log_state.version)
                if lease is None:
                    return log_state, None
                self._leases[log_state.version] = lease
            if lease.is_sure:
                return log_state, lease
            # A version whose own entry is there is the newest if the next one is not (`load_log_state`).
            exists, version = self.storage.exists, log_state.version
            if not exists(entry_name(version + 1)) and exists(entry_name(version)):
                lease.is_sure = True
                return log_state, lease
            again = self.newest()
            if again.version == version:
                lease.is_sure = True
                return again, lease
            log_state = again

    def hold(self) -> Seen:
        """Return the newest log state with a hold: all files of this version and later ones stay while it exists."""
        hold = None if self._root is None else take_lease(self._root, self.newest().version, HELD)
        return self.newest(), hold

    def settle(self) -> None:
        """Make the store's directories survive a power failure, once for each process that commits to the store.

        The process that created them may have died before doing so.
        """
        if not self._settled:
            self.storage.settle(entry_name(0))
            self._settled = True

    def check_identity(self) -> None:
        """Raise NotFoundError STORE_REPLACED unless the opened store still exists, which costs one look at a file."""
        if self._root is None:
            (data,) = self.storage.read_many([STORE_FILE])
            if data is None or stored_identity(data) != self._spec.store_id:
                raise replaced(f"store {self._spec.name!r}", self._spec.store_id)
            return
        state = self.storage.state(STORE_FILE)
        if state is None:
            raise replaced(f"store {self._spec.name!r}", self._spec.store_id)
        if state != self._identity:
            if stored_identity(self.storage.read(STORE_FILE)) != self._spec.store_id:
                raise replaced(f"store {self._spec.name!r}", self._spec.store_id)
            self._identity = state

    def look(self) -> None:
        """Check the identity as `check_identity` does, and put off the next such look of a call for one key."""
        if self._root is not None:
            self.check_identity()
            self.look_at = perf_counter_ns() + LOOK_NS
        else:
            self.newest()  # a store that was rebuilt keeps its description, and its log says so
            self.look_at = NEVER

    def is_replaced(self) -> bool:
        """Return whether the opened store no longer exists, as far as that can be known."""
        try:
            self.check_identity()
        except NotFoundError as error:
            return error.code == ErrorCode.STORE_REPLACED
        except StateStoreError:
            return False
        return False

    @contextlib.contextmanager
    def or_replaced(self) -> Iterator[None]:
        """Raise NotFoundError STORE_REPLACED in place of a StorageError of the block if the store is gone: its files
        and folders are what the block has missed.
        """
        try:
            yield
        except StorageError:
            self.check_identity()
            raise

    def forget(self) -> None:
        """Forget the newest state, so that the next look reads the log anew."""
        self.known = None


class PinnedLog:
    """The newest state of a log at the first look.

    ``keeps_files``: the state has a lease, so its files stay as long as this object exists, which therefore must not
    outlive a statement. Without it nothing is kept, and reads are planned on the newest files.
    """

    def __init__(self, keeps_files: bool = False) -> None:
        self.keeps_files = keeps_files
        self._seen: Seen | None = None
        self._lock = threading.Lock()

    def log_state(self, log: StoreLog, known: Seen | None = None) -> LogState:
        """Return the state. ``known`` is what the caller has just seen: nobody looks again for the first state.

        Raises NotFoundError STORE_REPLACED.
        """
        with self._lock:
            if self._seen is None:
                if self.keeps_files:
                    self._seen = log.leased()
                else:
                    self._seen = (log.newest() if known is None else known[0]), None
            return self._seen[0]

    def leased(self, log: StoreLog) -> Seen:
        """Return the state with its lease, which only a pin that keeps files has."""
        assert self.keeps_files, "a pin without a lease"
        self.log_state(log)
        assert self._seen is not None
        return self._seen
