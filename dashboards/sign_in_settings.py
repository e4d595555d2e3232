"""Settings of signing in to the pages."""

from __future__ import annotations

from warehouse.contract.settings import AnySetting, Setting

MODE = Setting(
    "sign_in",
    "mode",
    "none",
    "none, oidc or proxy",
    "None: one person on this machine alone; pages that others can reach need one of the two.",
)
SECRETS_FILE = Setting(
    "sign_in",
    "secrets_file",
    "",
    "path",
    "Streamlit's secrets.toml with [auth] for oidc: redirect_uri, cookie_secret, client_id, client_secret.",
)
NAME_CLAIM = Setting(
    "sign_in",
    "name_claim",
    "preferred_username",
    "claim",
    "The claim of OIDC that is the login in the scheduler; email counts only when the provider says it is verified.",
)
STRIP_DOMAIN = Setting(
    "sign_in",
    "strip_domain",
    "",
    "domain",
    "Names end in @ and this domain, and the login is what stands before; a name of another domain is refused.",
)
GROUPS_CLAIM = Setting("sign_in", "groups_claim", "groups", "claim", "What Keycloak, Okta and Entra call it.")
USER_HEADER = Setting(
    "sign_in", "user_header", "X-Forwarded-Preferred-Username", "header", "What oauth2-proxy sends the login in."
)
GROUPS_HEADER = Setting(
    "sign_in", "groups_header", "X-Forwarded-Groups", "header", "What oauth2-proxy sends groups in, parted by commas."
)
PROXY_SECRET_FILE = Setting(
    "sign_in",
    "proxy_secret_file",
    "",
    "path",
    "The proxy sends its content as X-Trueload-Proxy-Secret: else whoever reaches the port could be anybody.",
)
OPERATORS = Setting("sign_in", "operators", (), "logins", "Who sees everything.")
OPERATOR_GROUPS = Setting("sign_in", "operator_groups", (), "groups", "Whose members see everything.")

SETTINGS: tuple[AnySetting, ...] = (
    MODE,
    SECRETS_FILE,
    NAME_CLAIM,
    STRIP_DOMAIN,
    GROUPS_CLAIM,
    USER_HEADER,
    GROUPS_HEADER,
    PROXY_SECRET_FILE,
    OPERATORS,
    OPERATOR_GROUPS,
)
