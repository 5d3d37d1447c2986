"""`explore`: the server of the explorer, for a command line and for a notebook."""

from __future__ import annotations

import contextlib
import html
import importlib.util
import os
import secrets
import signal
import socket
import tempfile
import threading
import webbrowser
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statestore.formats.engine_arguments import engine_options_of
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, StateStoreError
from statestore.formats.notices import notify

if TYPE_CHECKING:
    import uvicorn

HOST = "127.0.0.1"
HEIGHT = 720
MAX_ADDRESS = 1 << 18  # bytes of a request; statements are part of addresses, and a sign takes up to nine bytes

OPENING = """<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <meta name="referrer" content="no-referrer" />
    <meta http-equiv="refresh" content="0; url={address}" />
    <title>statestore explorer</title>
  </head>
  <body>
    <p><a href="{address}">Open the explorer</a></p>
  </body>
</html>
"""


class Explorer:
    """A running explorer. In a notebook it shows its page; `stop` ends it, as does the end of the process."""

    def __init__(self, server: uvicorn.Server, listening: socket.socket, url: str, folder: Any) -> None:
        self.url = url
        self._server = server
        self._listening = listening
        self._folder = folder
        self._thread = threading.Thread(target=server.run, args=([listening],), name="statestore-explorer", daemon=True)

    def run(self, *, in_browser: bool = False) -> None:
        """Serve in the main thread until Ctrl-C, or until a signal ends the process."""
        try:
            with self._ended_in_order(), contextlib.suppress(KeyboardInterrupt):  # which uvicorn raises at its end
                if in_browser:  # in a thread, because some browsers end only when they are closed
                    threading.Thread(target=self._open_browser, name="statestore-browser", daemon=True).start()
                self._server.run([self._listening])
        finally:
            self._folder.cleanup()

    def _open_browser(self) -> None:
        """Open the page in the user's browser.

        Every user of the machine can read the command line of a browser, so it holds no token: it names a file that
        only this user can read, and the file leads to the address.
        """
        page = Path(self._folder.name).absolute() / "open.html"
        page.touch(0o600, exist_ok=False)
        page.write_text(OPENING.format(address=html.escape(self.url, quote=True)), encoding="utf-8")
        webbrowser.open(page.as_uri())

    @contextmanager
    def _ended_in_order(self) -> Iterator[None]:
        """Let SIGTERM and SIGHUP end the server, so that its files are removed; a signal that is ignored stays so."""

        def end(number: int, _: object) -> None:
            if self._server.should_exit:  # uvicorn takes a SIGTERM itself, and raises it again at its end
                raise SystemExit(128 + number)
            self._server.should_exit = True

        names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
        numbers = [number for number in (getattr(signal, name) for name in names) if _is_default(number)]
        try:
            for number in numbers:
                signal.signal(number, end)
            yield
        finally:
            for number in numbers:
                signal.signal(number, signal.SIG_DFL)

    def start(self) -> None:
        """Serve in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """End the server and remove its files."""
        self._server.should_exit = True
        self._thread.join()
        self._folder.cleanup()

    def __repr__(self) -> str:
        return f"Explorer({self.url})"

    def _repr_html_(self) -> str:
        address = html.escape(self.url, quote=True)
        return (
            f'<iframe src="{address}" title="statestore explorer" width="100%" height="{HEIGHT}" '
            f'style="border: 1px solid #8888; border-radius: 6px"></iframe><p><a href="{address}" target="_blank">'
            "open in a window of its own</a></p>"
        )


def explore(*paths: str | os.PathLike[str], port: int = 0, **options: Any) -> Explorer:
    """Serve a page on this machine that scrubs through the past of the state at ``paths``, and return its handle.

    A notebook shows the page; ``url`` is its address, which holds the token that the server asks for. ``port`` 0 takes
    a free one. Only the given paths are read, and nothing is written into them. A local folder that holds several
    warehouses, checkpoints or other states stands for those that it holds now. ``options`` are those of engines that
    select state.

    Raises InvalidInputError MISSING_OPTION without a path, and NotFoundError EXPLORER_NOT_INSTALLED without the extra.
    """
    selected = engine_options_of("explore", options)
    made = explorer(opened_paths([os.fspath(path) for path in paths], selected), selected, port)
    made.start()
    return made


def opened_paths(paths: Sequence[str], options: Mapping[str, str]) -> list[str]:
    """Return the paths, and in place of a local folder that is no place itself the places below it, if any.

    A notice names folders below or in a path that are left out, and why (`statestore.formats.notices`).
    """
    from statestore.catalog.engines.places_below import places_below
    from statestore.catalog.warehouse import open_warehouse

    found: list[str] = []
    for path in paths:
        opened: list[str] = []
        left_out: list[str] = []
        try:
            open_warehouse(path, options)
            opened = [path]
        except StateStoreError as error:
            if error.code == ErrorCode.NOTHING_HERE:
                opened = places_below(Path(path), leave_out=left_out.append)
        for each in opened:
            left_out += _not_shown(each, options, [*paths, *opened])
        notify(f"the explorer of {path}", left_out)
        found += opened or [path]
    return found


def _not_shown(path: str, options: Mapping[str, str], shown: Sequence[str]) -> list[str]:
    """Return a sentence about the places in a place that the explorer does not show."""
    from statestore.catalog.engines.places_below import listed_below
    from statestore.catalog.warehouse import open_warehouse

    try:
        place = open_warehouse(path, options)
        others = [each for each in place.beside() if not any(Path(one).is_relative_to(each) for one in shown)]
    except StateStoreError:
        return []  # it is shown with its error
    root = Path(place.location.path)
    return [f"not shown of {root}, each with a path of its own: {listed_below(others, root)}"] if others else []


def explorer(paths: Sequence[str], options: Mapping[str, str], port: int) -> Explorer:
    """Return an explorer that listens and does not serve yet."""
    if not paths:
        raise InvalidInputError(ErrorCode.MISSING_OPTION, "explore: give at least one path")
    if any(importlib.util.find_spec(name) is None for name in ("starlette", "uvicorn")):
        raise NotFoundError(
            ErrorCode.EXPLORER_NOT_INSTALLED,
            "the explorer needs the packages starlette and uvicorn; type: pip install 'statestore[explore]'",
        )
    import uvicorn

    from statestore.connector.explorer.app import application
    from statestore.connector.explorer.guard import Connection, Guard
    from statestore.connector.explorer.opened_paths import OpenedPaths
    from statestore.connector.explorer.row_files import RowFiles

    listening = _listening(port)
    number: int = listening.getsockname()[1]
    token = secrets.token_urlsafe(24)
    folder = tempfile.TemporaryDirectory(prefix="statestore-explorer-")
    guarded = Guard(application(OpenedPaths(paths, options), RowFiles(Path(folder.name))), token, number)
    config = uvicorn.Config(
        guarded,
        log_level="error",  # a warning is about a request that is none, which everybody on the machine can send
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
        http=Connection,
        ws="none",
        h11_max_incomplete_event_size=MAX_ADDRESS,
    )
    return Explorer(uvicorn.Server(config), listening, f"http://{HOST}:{number}/?token={token}", folder)


def _is_default(number: signal.Signals) -> bool:
    return signal.getsignal(number) == signal.SIG_DFL


def _listening(port: int) -> socket.socket:
    try:
        made = socket.create_server((HOST, port))
        # Without, the body of each answer waits 40 ms until its head was acknowledged: asyncio turns that off only for
        # sockets that name their protocol. Connections have the options of the socket that accepts them.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made
    except (OSError, OverflowError) as error:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"port {port}: {error}; expected a free port of 127.0.0.1, or 0 for any"
        ) from error
