"""Addresses of the pages of folders, below ``/folders/``."""

from django.urls import path, register_converter

from backendai.portal.web.folders import changes, cutting, explorer, management, pages, sftp


class VerbConverter:
    """Matches an action on a whole folder."""

    regex = "trash|restore|retry|leave"

    def to_python(self, value: str) -> str:
        return value

    to_url = to_python


class DigitsConverter(VerbConverter):
    """Matches the first digits of a folder's id, as in the host name of its files."""

    regex = "[0-9a-f]{12}"


register_converter(VerbConverter, "folder_verb")
register_converter(DigitsConverter, "folder_digits")

urlpatterns = [
    path("", pages.folders, name="folders"),
    path("new/", pages.create, name="folder_new"),
    path("sftp/", sftp.sftp, name="folders_sftp"),
    path("trash/", pages.trash, name="folders_trash"),
    path("many/", pages.change_many, name="folders_many"),
    path("at/<folder_digits:digits>/", pages.by_digits, name="folder_by_digits"),
    path("invitations/<int:grant_id>/", pages.answer_invitation, name="folder_invitation"),
    path("<uuid:folder_id>/", explorer.explorer, name="folder"),
    path("<uuid:folder_id>/file/", explorer.file, name="folder_file"),
    path("<uuid:folder_id>/enter/", explorer.enter, name="folder_enter"),
    path("<uuid:folder_id>/lead/", explorer.lead, name="folder_lead"),
    path("<uuid:folder_id>/directories/", changes.make_directory, name="folder_make_directory"),
    path("<uuid:folder_id>/rename/", changes.rename, name="folder_rename_entry"),
    path("<uuid:folder_id>/move/", changes.move, name="folder_move"),
    path("<uuid:folder_id>/delete/", changes.delete, name="folder_delete"),
    path("<uuid:folder_id>/trash/", explorer.bin, name="folder_bin"),
    path("<uuid:folder_id>/trash/change/", changes.change_bin, name="folder_change_bin"),
    path("<uuid:folder_id>/sharing/", management.sharing, name="folder_sharing"),
    path("<uuid:folder_id>/sharing/<uuid:guest_id>/revoke/", management.revoke, name="folder_revoke"),
    path("<uuid:folder_id>/sharing/<uuid:session_id>/cut-off/", cutting.cut, name="folder_cut_off"),
    path("<uuid:folder_id>/settings/", management.settings, name="folder_settings"),
    path("<uuid:folder_id>/clone/", management.clone, name="folder_clone"),
    path("<uuid:folder_id>/purge/", pages.purge, name="folder_purge"),
    path("<uuid:folder_id>/state/<folder_verb:verb>/", pages.change_state, name="folder_state"),
]
