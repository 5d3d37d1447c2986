"""`python -m statestore`, which is the command `statestore`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line. Ctrl-C also ends it quietly while its modules are loaded, which takes a second."""
    try:
        from statestore.connector.cli.program import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
