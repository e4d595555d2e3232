"""The server's side of TLS: its certificate, and certificates of nodes that stand for their tokens."""

from __future__ import annotations

import hashlib
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from warehouse.contract.errors import StoreError
from warehouse.server_settings import CERTIFICATE_FILE, CLIENT_CA_FILE, KEY_FILE

if TYPE_CHECKING:
    import asyncio

    from starlette.types import ASGIApp, Receive, Scope, Send

    from warehouse.contract.settings import Settings

NODE = "trueload.node"
"""Where a request's scope holds the node of the client's certificate."""


@dataclass(frozen=True, slots=True)
class Files:
    """Certificate and key of the server; ``client_ca`` is None where clients show no certificates."""

    certificate: Path
    key: Path
    client_ca: Path | None


def chosen(settings: Settings) -> Files | None:
    """Give what the settings name; None: no TLS.

    Raises:
        StoreError: one is named without the other, or cannot be used.

    """
    certificate, key, client_ca = (settings[setting] for setting in (CERTIFICATE_FILE, KEY_FILE, CLIENT_CA_FILE))
    if not certificate and not key:
        if client_ca:
            raise StoreError(f"{CLIENT_CA_FILE.name} needs {CERTIFICATE_FILE.name} and {KEY_FILE.name}")
        return None
    if not certificate or not key:
        raise StoreError(f"{CERTIFICATE_FILE.name} and {KEY_FILE.name} go together; one is missing")
    files = Files(Path(certificate), Path(key), Path(client_ca) if client_ca else None)
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.certificate, files.key)
        if files.client_ca is not None:
            context.load_verify_locations(files.client_ca)
    except (OSError, ssl.SSLError) as cause:
        raise StoreError(f"{certificate}, {key}, {client_ca or 'no client CA'}: cannot be used ({cause})") from cause
    return files


def options(files: Files | None) -> dict[str, Any]:
    """Give uvicorn's options for it."""
    if files is None:
        return {}
    found: dict[str, Any] = {"ssl_certfile": str(files.certificate), "ssl_keyfile": str(files.key)}
    if files.client_ca is not None:
        found |= {
            "ssl_ca_certs": str(files.client_ca),
            "ssl_cert_reqs": ssl.CERT_OPTIONAL,
            "http": WithCertificate,
        }
    return found


def fingerprint(files: Files) -> str:
    """Give the SHA-256 of the server's certificate: commands on the same machine know the server by it."""
    pem = files.certificate.read_text(encoding="ascii", errors="replace")
    first = pem[pem.index(ssl.PEM_HEADER) : pem.index(ssl.PEM_FOOTER) + len(ssl.PEM_FOOTER)]
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(first)).hexdigest()


class WithCertificate(H11Protocol):
    """uvicorn's HTTP, which tells the application of what node the client's certificate is."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Note the node of the certificate that the handshake has verified."""
        super().connection_made(transport)
        node = common_name(transport.get_extra_info("peercert"))
        if node is not None:
            self.app = _marked(self.app, node)


def _marked(app: ASGIApp, node: str) -> ASGIApp:
    async def marked(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, NODE: node}, receive, send)

    return marked


def common_name(certificate: dict[str, Any] | None) -> str | None:
    """Give the one common name of a verified certificate's subject; None where there is none, or several."""
    subject = (certificate or {}).get("subject", ())
    names = [value for part in subject for key, value in part if key == "commonName"]
    return names[0] if len(names) == 1 and names[0] else None
