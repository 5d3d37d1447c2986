"""Names of the records of a store's owners, and of their fences (`statestore.catalog.commits.owners.store_owners`)."""

from __future__ import annotations

import re

FOLDER = "owners/"
OWNER = re.compile(r"owners/[0-9]{20}\.json")
APPLICATION = "statestore.owner"
"""The application in the transaction of a fence; its batch is the number of the owner."""


def owner_name(number: int) -> str:
    return f"{FOLDER}{number:020d}.json"
