"""Keys of PostgreSQL's advisory locks, in one table so that each is unique. Locks are held until the end of the
transaction. A key with a second number is a separate lock per number."""

from __future__ import annotations

PLACEMENT = 0x62616931  # and the resource group: its pass carries out a plan
HOLDER = 0x62616932  # and a hash of the holder: what counts against its limits is added up
OBSERVING = 0x62616933  # usage is sampled
CLUSTER_NETWORK = 0x62616934  # a cluster session chooses its network id
FOLDERS = 0x62616935  # and a hash of the owner: folders are counted against its limits
