"""Addresses of folders and storage hosts."""

from django.urls import path

from backendai.portal.api.folders import files as folder_files
from backendai.portal.api.folders import shares as folder_shares
from backendai.portal.api.folders import storage_hosts
from backendai.portal.api.folders import uses as folder_uses
from backendai.portal.api.folders import views as folders

_ONE = "folders/<uuid:folder_id>/"
urlpatterns = [
    path("folders/", folders.FolderList.as_view(), name="folders"),
    path("folders/transfer/", folder_shares.FolderTransfer.as_view(), name="folders-transfer"),
    path("folders/invitations/", folder_shares.FolderInvitations.as_view(), name="folder-invitations"),
    path(
        "folders/invitations/<int:grant_id>/accept/",
        folder_shares.FolderInvitationAccept.as_view(),
        name="folder-invitation-accept",
    ),
    path(
        "folders/invitations/<int:grant_id>/decline/",
        folder_shares.FolderInvitationDecline.as_view(),
        name="folder-invitation-decline",
    ),
    path(_ONE, folders.FolderDetail.as_view(), name="folder"),
    path(f"{_ONE}restore/", folders.FolderRestore.as_view(), name="folder-restore"),
    path(f"{_ONE}retry/", folders.FolderRetry.as_view(), name="folder-retry"),
    path(f"{_ONE}purge/", folders.FolderPurge.as_view(), name="folder-purge"),
    path(f"{_ONE}clone/", folders.FolderClone.as_view(), name="folder-clone"),
    path(f"{_ONE}shares/", folder_shares.FolderShares.as_view(), name="folder-shares"),
    path(f"{_ONE}shares/<uuid:guest_id>/", folder_shares.FolderShare.as_view(), name="folder-share"),
    path(f"{_ONE}leave/", folder_shares.FolderLeave.as_view(), name="folder-leave"),
    path(f"{_ONE}entries/", folder_files.FolderEntries.as_view(), name="folder-entries"),
    path(f"{_ONE}directories/", folder_files.FolderDirectories.as_view(), name="folder-directories"),
    path(f"{_ONE}moves/", folder_files.FolderMoves.as_view(), name="folder-moves"),
    path(f"{_ONE}copies/", folder_files.FolderCopies.as_view(), name="folder-copies"),
    path(f"{_ONE}deletions/", folder_files.FolderDeletions.as_view(), name="folder-deletions"),
    path(f"{_ONE}operations/<str:operation>/", folder_files.FolderOperation.as_view(), name="folder-operation"),
    path(f"{_ONE}trash/", folder_files.FolderTrash.as_view(), name="folder-trash"),
    path(f"{_ONE}trash/<str:item>/", folder_files.FolderTrashItem.as_view(), name="folder-trash-item"),
    path(f"{_ONE}trash/<str:item>/restore/", folder_files.FolderTrashRestore.as_view(), name="folder-trash-restore"),
    path(f"{_ONE}usage/", folder_uses.FolderUsage.as_view(), name="folder-usage"),
    path(f"{_ONE}uses/", folder_uses.FolderUses.as_view(), name="folder-uses"),
    path(f"{_ONE}uses/<uuid:session_id>/cut-off/", folder_uses.FolderCutOff.as_view(), name="folder-cut-off"),
    path(f"{_ONE}ticket/", folder_files.FolderTicket.as_view(), name="folder-ticket"),
    path("storage-hosts/", storage_hosts.StorageHostList.as_view(), name="storage-hosts"),
    path("storage-hosts/<uuid:storage_host_id>/", storage_hosts.StorageHostDetail.as_view(), name="storage-host"),
]
