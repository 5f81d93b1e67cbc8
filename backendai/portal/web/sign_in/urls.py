"""Addresses of signing in, under the route names of django-allauth. Other routes of django-allauth are not served."""

from allauth.socialaccount.views import login_cancelled
from django.contrib.auth.views import LogoutView
from django.urls import path

from backendai.portal.web.account import security
from backendai.portal.web.sign_in import demo, single_sign_on
from backendai.portal.web.sign_in import pages as sign_in

urlpatterns = [
    path("login/", sign_in.Login.as_view(), name="account_login"),
    path("login/demo/", demo.sign_in, name="demo_sign_in"),
    path("login/code/", sign_in.SecondStep.as_view(), name="mfa_authenticate"),
    path("login/passkey/", sign_in.PasskeyLogin.as_view(), name="mfa_login_webauthn"),
    path("login/cancelled/", login_cancelled, name="socialaccount_login_cancelled"),
    path("login/with/<slug:provider_id>/", single_sign_on.leave, name="openid_connect_login"),
    path("login/with/<slug:provider_id>/callback/", single_sign_on.come_back, name="openid_connect_callback"),
    path("logout/", LogoutView.as_view(), name="account_logout"),
    path("signup/", sign_in.sign_up, name="account_signup"),
    path("account/security/", security.security, name="mfa_index"),
    path("account/security/sign-out/", security.sign_out_elsewhere, name="sign_out_elsewhere"),
    path("account/security/confirm/", sign_in.PasswordAgain.as_view(), name="account_reauthenticate"),
    path("account/security/confirm/code/", sign_in.CodeAgain.as_view(), name="mfa_reauthenticate"),
    path("account/security/confirm/passkey/", sign_in.PasskeyAgain.as_view(), name="mfa_reauthenticate_webauthn"),
    path("account/security/app/", security.AddApp.as_view(), name="mfa_activate_totp"),
    path("account/security/app/remove/", security.RemoveApp.as_view(), name="mfa_deactivate_totp"),
    path("account/security/passkeys/new/", security.AddPasskey.as_view(), name="mfa_add_webauthn"),
    path("account/security/passkeys/<int:pk>/", security.RenamePasskey.as_view(), name="mfa_edit_webauthn"),
    path("account/security/passkeys/<int:pk>/remove/", security.RemovePasskey.as_view(), name="mfa_remove_webauthn"),
    path("account/security/codes/", security.Codes.as_view(), name="mfa_view_recovery_codes"),
    path("account/security/codes/new/", security.NewCodes.as_view(), name="mfa_generate_recovery_codes"),
    path("account/security/codes/file/", security.CodesFile.as_view(), name="mfa_download_recovery_codes"),
]
