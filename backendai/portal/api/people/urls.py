"""Addresses of people, projects, domains and invitations."""

from django.urls import path

from backendai.portal.api.people import device, domains, invitations, key_pair_limits, projects, second_factors
from backendai.portal.api.people import views as people

urlpatterns = [
    path("device/", device.DeviceCode.as_view(), name="device"),
    path("device/token/", device.DeviceToken.as_view(), name="device-token"),
    path("users/", people.UserList.as_view(), name="users"),
    path("users/<uuid:user_id>/", people.UserDetail.as_view(), name="user"),
    path("users/<uuid:user_id>/activate/", people.UserActivation.as_view(), name="user-activate"),
    path("users/<uuid:user_id>/deactivate/", people.UserDeactivation.as_view(), name="user-deactivate"),
    path("users/<uuid:user_id>/password/", people.UserPassword.as_view(), name="user-password"),
    path(
        "users/<uuid:user_id>/second-factors/",
        second_factors.UserSecondFactors.as_view(),
        name="user-second-factors",
    ),
    path("users/<uuid:user_id>/purge/", people.UserPurge.as_view(), name="user-purge"),
    path("users/<uuid:user_id>/keypairs/", key_pair_limits.UserKeyPairs.as_view(), name="user-keypairs"),
    path("users/<uuid:user_id>/keypairs/<str:pair>/", key_pair_limits.UserKeyPair.as_view(), name="user-keypair"),
    path("projects/", projects.ProjectList.as_view(), name="projects"),
    path("projects/<uuid:project_id>/", projects.ProjectPage.as_view(), name="project"),
    path("projects/<uuid:project_id>/members/", projects.MemberList.as_view(), name="members"),
    path("projects/<uuid:project_id>/members/<uuid:user_id>/", projects.MemberPage.as_view(), name="member"),
    path("domains/", domains.DomainList.as_view(), name="domains"),
    path("domains/<int:domain_id>/", domains.DomainDetail.as_view(), name="domain"),
    path("invitations/", invitations.InvitationList.as_view(), name="invitations"),
    path("invitations/<uuid:invitation_id>/", invitations.InvitationDetail.as_view(), name="invitation"),
]
