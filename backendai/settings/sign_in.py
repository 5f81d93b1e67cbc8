"""How people sign in: what django-allauth is told, second factors, and a provider of identities (OpenID Connect)."""

from __future__ import annotations

import json
from typing import Any

from backendai.settings import environment as told


def _mapping(text: str) -> Any:
    """Return the JSON of the setting; text that is none comes back as it is, for the system checks to name it."""
    try:
        return json.loads(text) if text.strip() else {}
    except ValueError:
        return text


AUTHENTICATION_BACKENDS = ["backendai.domain.accounts.sign_in.authentication.ThrottledBackend"]
LOGIN_URL = "web:login"
LOGIN_REDIRECT_URL = "web:sessions"
LOGOUT_REDIRECT_URL = "web:login"

SIGNUP = told.text("BACKENDAI_SIGNUP", "off")
PROXIES = told.words("BACKENDAI_PROXIES")  # whose X-Forwarded-For is believed: attempts are counted by address
REQUIRE_MFA = told.text("BACKENDAI_REQUIRE_MFA", "none")

# -- django-allauth: one name (the e-mail address), no mails, attempts counted in our database -------------------------
ACCOUNT_ADAPTER = "backendai.domain.accounts.sign_in.adapters.PortalAdapter"
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_RATE_LIMITS = False
ACCOUNT_SESSION_REMEMBER = True
ACCOUNT_FORMS = {"login": "backendai.portal.web.sign_in.forms.LoginForm"}

MFA_ADAPTER = "backendai.domain.accounts.sign_in.adapters.PortalFactors"
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_RATE_LIMITS = False
MFA_TOTP_ISSUER = "Backend.AI"
MFA_TOTP_TOLERANCE = 1  # clocks of telephones are late at times
MFA_FORMS = {
    "authenticate": "backendai.portal.web.sign_in.forms.CodeForm",
    "reauthenticate": "backendai.portal.web.sign_in.forms.CodeAgainForm",
    "activate_totp": "backendai.portal.web.sign_in.forms.FirstCodeForm",
    "add_webauthn": "backendai.portal.web.sign_in.forms.PasskeyForm",
    "login_webauthn": "backendai.portal.web.sign_in.forms.PasskeyLoginForm",
    "authenticate_webauthn": "backendai.portal.web.sign_in.forms.PasskeyStepForm",
    "reauthenticate_webauthn": "backendai.portal.web.sign_in.forms.PasskeyAgainForm",
}

# -- OpenID Connect ----------------------------------------------------------------------------------------------------
OIDC_NAME = told.text("BACKENDAI_OIDC_NAME", "Single sign-on")
OIDC_ISSUER = told.text("BACKENDAI_OIDC_ISSUER").rstrip("/")
OIDC_CLIENT_ID = told.text("BACKENDAI_OIDC_CLIENT_ID")
OIDC_CLIENT_SECRET = told.text("BACKENDAI_OIDC_CLIENT_SECRET")
OIDC_GROUP_CLAIM = told.text("BACKENDAI_OIDC_GROUP_CLAIM", "groups")
OIDC_MAPPING = _mapping(told.text("BACKENDAI_OIDC_MAPPING"))
OIDC_LINK_BY_EMAIL = told.switch("BACKENDAI_OIDC_LINK_BY_EMAIL")
OIDC_PROVIDER_ID = "sso"

SOCIALACCOUNT_ADAPTER = "backendai.portal.web.sign_in.single_sign_on.PortalIdentities"
SOCIALACCOUNT_EMAIL_VERIFICATION = "none"
SOCIALACCOUNT_STORE_TOKENS = False
# The content security policy lets forms go to our own origin only, so the way out is a link. What comes back is bound
# to the browser that went.
SOCIALACCOUNT_LOGIN_ON_GET = True
SOCIALACCOUNT_PROVIDERS: dict[str, Any] = {
    "openid_connect": {
        "OAUTH_PKCE_ENABLED": True,
        "APPS": [
            {
                "provider_id": OIDC_PROVIDER_ID,
                "name": OIDC_NAME,
                "client_id": OIDC_CLIENT_ID,
                "secret": OIDC_CLIENT_SECRET,
                "settings": {"server_url": OIDC_ISSUER},
            }
        ]
        if OIDC_ISSUER and OIDC_CLIENT_ID
        else [],
    }
}
