"""Creates, changes, shares, copies and deletes folders."""

from backendai.domain.storage.services.cloning import clone_folder, link_folder
from backendai.domain.storage.services.delivery import deliver
from backendai.domain.storage.services.folders import (
    change_folder,
    create_folder,
    purge_folder,
    rename_folder,
    restore_folder,
    retry_folder,
    set_cloneable,
    set_limit,
    set_member_rights,
    trash_folder,
)
from backendai.domain.storage.services.hosts import delete_host, write_host
from backendai.domain.storage.services.sharing import (
    accept_invitation,
    decline_invitation,
    leave_folder,
    people_to_share_with,
    revoke_grant,
    set_override,
    share_folder,
)
from backendai.domain.storage.services.tickets import direct_ticket, folder_ticket
from backendai.domain.storage.services.transfers import live_folders_of, refuse_while_owning, transfer_folders

__all__ = [
    "accept_invitation",
    "change_folder",
    "clone_folder",
    "create_folder",
    "decline_invitation",
    "delete_host",
    "deliver",
    "direct_ticket",
    "folder_ticket",
    "leave_folder",
    "link_folder",
    "live_folders_of",
    "people_to_share_with",
    "purge_folder",
    "refuse_while_owning",
    "rename_folder",
    "restore_folder",
    "retry_folder",
    "revoke_grant",
    "set_cloneable",
    "set_limit",
    "set_member_rights",
    "set_override",
    "share_folder",
    "transfer_folders",
    "trash_folder",
    "write_host",
]
