"""`python -m statestore`, which is the command `statestore`."""

from __future__ import annotations

from statestore.connector.cli.main import main

if __name__ == "__main__":
    main()
