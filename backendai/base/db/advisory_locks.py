"""Keys of PostgreSQL's advisory locks, in one table so that each is unique. A lock is held until the transaction ends.
A key with a second number is a separate lock for each number."""

from __future__ import annotations

PLACEMENT = 0x62616931  # with the resource group: held while a plan is carried out
HOLDER = 0x62616932  # with a hash of the holder: held while its use is compared with its limits
OBSERVING = 0x62616933  # held while the observe pass samples usage
CLUSTER_NETWORK = 0x62616934  # held while cluster sessions get network numbers
FOLDERS = 0x62616935  # with a hash of the owner: held while folders are compared with the owner's limits
