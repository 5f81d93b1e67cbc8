"""Keys of PostgreSQL's advisory locks, in one table so that each is unique. Locks are held until the end of the
transaction. A key with a second number is a separate lock per number."""

from __future__ import annotations

PLACEMENT = 0x62616931  # with the resource group: a pass carries out its plan
HOLDER = 0x62616932  # with a hash of the holder: its use is summed and compared with its limits
OBSERVING = 0x62616933  # the observe pass samples usage
CLUSTER_NETWORK = 0x62616934  # a cluster session chooses its network id
FOLDERS = 0x62616935  # with a hash of the owner: folders are counted against the owner's limits
