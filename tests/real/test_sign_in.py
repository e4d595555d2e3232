"""Real people before real pages: a browser signs in at a local OIDC provider or through a proxy, and sees its own.

Ann and ben each have a job; ann runs the cluster, ben does not; carol answers for ben's account.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.real.test_browser import FLAGS, _free_ports

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(300)]

JOBS = """job_id,name,user,account,gpu_count,start_at,end_at,driver_util_ratio
1,anns-secret,ann,ml,1,2026-11-02T00:00:00Z,2026-11-03T00:00:00Z,0.25
2,bens-train,ben,bio,1,2026-11-02T00:00:00Z,2026-11-03T00:00:00Z,0.5
"""
CLIENT, SECRET = "trueload", "a-client-secret-of-the-test"
PROXY_SECRET = "0123456789abcdef0123"
PATIENCE_MS = 60_000


@dataclass
class Provider:
    """An OIDC provider on loopback that signs in whoever is its ``person``, without asking."""

    person: dict[str, object] = field(default_factory=dict)
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "1", "use": "sig"}))
    nonces: dict[str, str] = field(default_factory=dict)
    url: str = ""

    def answer(self, path: str, query: Mapping[str, list[str]], form: Mapping[str, list[str]]) -> Any:
        """Give a document, or an address to go on to."""
        if path == "/.well-known/openid-configuration":
            return {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "jwks_uri": f"{self.url}/jwks",
                "response_types_supported": ["code"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256"],
            }
        if path == "/jwks":
            return {"keys": [self.key.as_dict(private=False)]}
        if path == "/authorize":
            code = f"code-{len(self.nonces)}"
            self.nonces[code] = query.get("nonce", [""])[0]
            return f"{query['redirect_uri'][0]}?{urlencode({'code': code, 'state': query['state'][0]})}"
        if path == "/token":
            now = int(time.time())
            claims = {"iss": self.url, "aud": CLIENT, "sub": "1", "iat": now, "exp": now + 600}
            claims |= {"nonce": self.nonces[form["code"][0]], **self.person}
            token = jwt.encode({"alg": "RS256", "kid": "1"}, claims, self.key)
            return {"access_token": "a", "token_type": "Bearer", "expires_in": 600, "id_token": token}
        return None


@contextmanager
def serving(provider: Provider) -> Iterator[Provider]:
    """Serve a provider on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            self._answer(parse_qs(self.rfile.read(length).decode()))

        def _answer(self, form: Mapping[str, list[str]]) -> None:
            parts = urlsplit(self.path)
            found = provider.answer(parts.path, parse_qs(parts.query), form)
            if isinstance(found, str):
                self.send_response(302)
                self.send_header("Location", found)
                self.end_headers()
                return
            body = json.dumps(found).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield provider
    server.shutdown()
    thread.join()
    server.server_close()


@contextmanager
def running(
    arguments: list[str], ready: str, log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Run a trueload command until its address answers; end it by its id."""
    with log.open("w", encoding="utf-8") as file:
        child = subprocess.Popen(
            [sys.executable, "-m", "trueload", *arguments],
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
        )
        try:
            for _ in range(1200):
                assert child.poll() is None, log.read_text(encoding="utf-8")
                try:
                    with urllib.request.urlopen(ready, timeout=5):  # noqa: S310 - loopback
                        break
                except OSError:
                    time.sleep(0.1)
            else:
                pytest.fail(f"{ready} did not answer: {log.read_text(encoding='utf-8')}")
            yield
        finally:
            child.terminate()
            child.wait(30)


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    """Give one browser for the module."""
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        yield opened
        opened.close()


@dataclass
class World:
    """A running server, its pages, and where they stand."""

    folder: Path
    provider: Provider
    oidc: str
    proxy: str

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, chromium: str) -> Iterator[World]:
    """Give a server with two jobs, and pages before it: one that signs in by OIDC, one behind a proxy."""
    folder = tmp_path_factory.mktemp("site")
    data = folder / "data"
    (folder / "jobs.csv").write_text(JOBS, encoding="utf-8")
    load = [sys.executable, "-m", "trueload", "import", "jobs_csv", str(folder / "jobs.csv"), "--data", str(data)]
    subprocess.run(load, check=True, capture_output=True)
    (folder / "who.toml").write_text('[leads."group:bio-leads"]\naccounts = ["b*"]\n', encoding="utf-8")
    (folder / "proxy.secret").write_text(PROXY_SECRET, encoding="utf-8")
    server, oidc, proxy = _free_ports(3)
    common = {"TRUELOAD_SIGN_IN__OPERATORS": "ann", "TRUELOAD_IDENTITY__FILE": str(folder / "who.toml")}
    url, token = f"http://127.0.0.1:{server}", data / "tokens" / "operator.token"
    with serving(Provider()) as provider:
        (folder / "secrets.toml").write_text(
            f'[auth]\nredirect_uri = "http://127.0.0.1:{oidc}/oauth2callback"\n'
            f'cookie_secret = "{base64.b64encode(os.urandom(32)).decode()}"\nclient_id = "{CLIENT}"\n'
            f'client_secret = "{SECRET}"\n'
            f'server_metadata_url = "{provider.url}/.well-known/openid-configuration"\n',
            encoding="utf-8",
        )
        by_oidc = {**common, "TRUELOAD_SIGN_IN__MODE": "oidc"}
        by_oidc["TRUELOAD_SIGN_IN__SECRETS_FILE"] = str(folder / "secrets.toml")
        by_proxy = {**common, "TRUELOAD_SIGN_IN__MODE": "proxy"}
        by_proxy["TRUELOAD_SIGN_IN__PROXY_SECRET_FILE"] = str(folder / "proxy.secret")
        pages = ["pages", "--server", url, "--token-file", str(token), "--port"]
        with (
            running(["serve", "--data", str(data), "--port", server], f"{url}/healthz", folder / "server.log"),
            running([*pages, oidc], f"http://127.0.0.1:{oidc}/_stcore/health", folder / "oidc.log", by_oidc),
            running([*pages, proxy], f"http://127.0.0.1:{proxy}/_stcore/health", folder / "proxy.log", by_proxy),
        ):
            yield World(folder, provider, f"http://127.0.0.1:{oidc}", f"http://127.0.0.1:{proxy}")


def opened(browser: Browser, url: str, headers: dict[str, str] | None = None) -> Page:
    """Open an address as a browser that nobody used before."""
    context = browser.new_context(extra_http_headers=headers or {})
    context.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    tab = context.new_page()
    tab.goto(url)
    return tab


def sign_in(tab: Page) -> None:
    """Press the one button there is."""
    tab.get_by_role("button", name="Sign in").click()


def test_a_link_from_a_mail_survives_the_sign_in_and_shows_the_own_job(world: World, browser: Browser) -> None:
    world.provider.person = {"preferred_username": "ben", "groups": []}
    tab = opened(browser, f"{world.oidc}/job?id=2")
    expect(tab.get_by_text("Sign in to see")).to_be_visible()
    assert "bens-train" not in tab.content()
    sign_in(tab)
    expect(tab.get_by_text("bens-train").first).to_be_visible()
    assert "/job?" in tab.url
    expect(tab.get_by_text("ben, as user")).to_be_visible()


def test_a_person_sees_nothing_of_anothers_job_whatever_the_address(world: World, browser: Browser) -> None:
    world.provider.person = {"preferred_username": "ben", "groups": []}
    tab = opened(browser, f"{world.oidc}/job?id=1")
    sign_in(tab)
    expect(tab.get_by_text("no job").first).to_be_visible()
    assert "anns-secret" not in tab.content()


def test_who_runs_the_cluster_sees_it_and_may_leave(world: World, browser: Browser) -> None:
    world.provider.person = {"preferred_username": "ann"}
    tab = opened(browser, f"{world.oidc}/job?id=2")
    sign_in(tab)
    expect(tab.get_by_text("bens-train").first).to_be_visible()
    expect(tab.get_by_text("ann, as operator")).to_be_visible()
    tab.get_by_role("button", name="Sign out").click()
    expect(tab.get_by_text("Sign in to see")).to_be_visible()


def test_a_sign_in_without_a_name_opens_nothing(world: World, browser: Browser) -> None:
    world.provider.person = {"email": "ann@example.org"}
    tab = opened(browser, world.oidc)
    sign_in(tab)
    expect(tab.get_by_text("as nobody this site knows")).to_be_visible()
    assert "anns-secret" not in tab.content()


def test_through_a_proxy_a_lead_sees_the_accounts_of_the_own_group(world: World, browser: Browser) -> None:
    headers = {"X-Trueload-Proxy-Secret": PROXY_SECRET, "X-Forwarded-Preferred-Username": "carol"}
    tab = opened(browser, f"{world.proxy}/job?id=2", {**headers, "X-Forwarded-Groups": "x, bio-leads"})
    expect(tab.get_by_text("bens-train").first).to_be_visible()
    expect(tab.get_by_text("carol, as lead")).to_be_visible()
    tab.goto(f"{world.proxy}/job?id=1")
    expect(tab.get_by_text("no job").first).to_be_visible()


@pytest.mark.parametrize("secret", [None, "wrong-wrong-wrong-wrong"])
def test_who_comes_round_the_proxy_is_nobody(world: World, browser: Browser, secret: str | None) -> None:
    headers = {"X-Forwarded-Preferred-Username": "ann"} | ({"X-Trueload-Proxy-Secret": secret} if secret else {})
    tab = opened(browser, f"{world.proxy}/job?id=1", headers)
    expect(tab.get_by_text("reached through the site's proxy").first).to_be_visible()
    assert "anns-secret" not in tab.content()


def test_who_came_is_written_down(world: World) -> None:
    assert "signed in: ben as user by oidc" in world.log("oidc")
    assert "signed in: ann as operator by oidc" in world.log("oidc")
    assert "signed in: carol as lead by proxy" in world.log("proxy")
    assert "did not come through the proxy" in world.log("proxy")
