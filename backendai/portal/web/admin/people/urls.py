"""Addresses of the pages about people, projects and invitations."""

from django.urls import path

from backendai.portal.web.admin import files
from backendai.portal.web.admin.people import (
    import_people,
    invitations,
    key_pair_limits,
    project_forms,
    projects,
    user_actions,
    user_forms,
)
from backendai.portal.web.admin.people import pages as users

urlpatterns = [
    path("users/", users.UserList.as_view(), name="users"),
    path("users/new/", user_forms.NewUserPage.as_view(), name="user-new"),
    path("users/<uuid:pk>/", users.UserPage.as_view(), name="user"),
    path("users/<uuid:pk>/change/", user_forms.EditUserPage.as_view(), name="user-change"),
    path("users/<uuid:pk>/activate/", user_actions.ActivatePage.as_view(), name="user-activate"),
    path("users/<uuid:pk>/deactivate/", user_actions.DeactivatePage.as_view(), name="user-deactivate"),
    path("users/<uuid:pk>/password/", user_actions.PasswordPage.as_view(), name="user-password"),
    path("users/<uuid:pk>/factors/", user_actions.ResetFactorsPage.as_view(), name="user-factors"),
    path("users/<uuid:pk>/purge/", user_actions.PurgePage.as_view(), name="user-purge"),
    path("key-pairs/<str:pk>/", key_pair_limits.KeyPairLimits.as_view(), name="key-pair"),
    path("projects/<uuid:pk>/files/", files.ProjectFiles.as_view(), name="project-files"),
    path("domains/<int:pk>/files/", files.DomainFiles.as_view(), name="domain-files"),
    path("projects/", projects.ProjectList.as_view(), name="projects"),
    path("projects/new/", project_forms.ProjectFormPage.as_view(), name="project-new"),
    path("projects/<uuid:pk>/", projects.ProjectPage.as_view(), name="project"),
    path("projects/<uuid:pk>/change/", project_forms.ProjectFormPage.as_view(), name="project-change"),
    path("projects/<uuid:pk>/delete/", project_forms.ProjectDelete.as_view(), name="project-delete"),
    path("invitations/", invitations.InvitationList.as_view(), name="invitations"),
    path("invitations/new/", invitations.InvitationPage.as_view(), name="invitation-new"),
    path("invitations/<uuid:pk>/revoke/", invitations.InvitationRevoke.as_view(), name="invitation-revoke"),
    path("import/", import_people.ImportPage.as_view(), name="import"),
]
