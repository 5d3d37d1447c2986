"""The program: its version, its errors as lines on stderr, and its exit statuses. 0 is success, 1 failure, 2 wrong
usage, 3 rows of an alert (`watch_commands`), 130 an interrupt.

The commands are loaded when one is asked for. The version needs none of them.
"""

from __future__ import annotations

import gc
import os
import sys

from statestore.connector.version import show_version
from statestore.formats.errors import InvalidInputError, StateStoreError
from statestore.formats.notices import notices_to

BETWEEN_COLLECTIONS = 200_000
"""New objects after which Python looks for garbage. Most commands load modules and end, and have none: to look for it
after each 700 objects, as by default, takes 20 ms."""


def main() -> None:
    """Run the command line; errors of the tree and OSErrors become one line on stderr."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell, as in <&-
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: PTH123, SIM115
    try:
        if sys.argv[1:] in (["--version"], ["-V"]):
            show_version()
        else:
            with notices_to(_say_notice, all_threads=True):
                _run_commands()
    except StateStoreError as error:
        from statestore.connector.cli.main import in_words_of_options

        _say_error(in_words_of_options(str(error)))
        sys.exit(2 if isinstance(error, InvalidInputError) else 1)
    except BrokenPipeError:
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except UnicodeEncodeError as error:  # by stdout; a query or name that is not valid Unicode is an error of the tree
        character = error.object[error.start]
        _say_error(f"{character!a} cannot be printed in {error.encoding}; set PYTHONIOENCODING=utf-8")
        sys.exit(1)
    except OSError as error:  # a folder without read or write permission, or a full disk
        _say_error(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))
        sys.exit(1)


def _run_commands() -> None:
    gc.set_threshold(BETWEEN_COLLECTIONS)
    from statestore.connector.cli.main import app

    app(prog_name="statestore")


def _say_error(message: str) -> None:
    from statestore.connector.terminal import say_error  # prints columns of Arrow, too

    say_error(message)


def _say_notice(text: str) -> None:
    from statestore.connector.terminal import say_notice

    say_notice(text)
