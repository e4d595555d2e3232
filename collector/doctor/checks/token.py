"""Is there a token to send with, and is it nobody else's to read?"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from collector import settings as names
from collector.doctor.check import Check, Finding, Site, Stage


def _run(site: Site) -> Iterator[Finding]:
    token, join = site.settings[names.TOKEN_FILE], site.settings[names.JOIN_TOKEN_FILE]
    if not token and not join:
        yield Finding(
            "none",
            ok=False,
            reason="nothing is sent to a server: batches are spooled, and metrics can be scraped",
            fix="set agent.token_file, or agent.join_token_file to have the node enrol",
        )
        return
    if join:
        yield _file(Path(join), "join secret")
    if token and (not join or Path(token).exists()):
        yield _file(Path(token), "token")
    key = site.settings[names.TLS_KEY_FILE] or site.settings[names.TLS_CERTIFICATE_FILE]
    if key:
        yield _file(Path(key), "TLS key")


def _file(path: Path, what: str) -> Finding:
    try:
        status = path.stat()
        with path.open("rb") as opened:
            is_empty = not opened.read(4096).strip()
    except OSError as error:
        why = f"{path}: {error.strerror}"
        return Finding(f"{what} cannot be read", ok=False, reason=why, fix="mount or write it there", needed=True)
    if is_empty:
        return Finding(f"{what} is empty", ok=False, reason=str(path), fix="write the token into it", needed=True)
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        mode = stat.S_IMODE(status.st_mode)
        why = f"{path} has mode {mode:03o}: others could send in this node's name"
        return Finding(f"{what} is others' to read", ok=False, reason=why, fix=f"chmod 600 {path}")
    return Finding(f"{what} in {path}", needed=True)


CHECK = Check("token", "whether there is a token, readable by the agent alone", Stage.SECRETS, _run)
