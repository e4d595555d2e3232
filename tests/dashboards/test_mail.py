"""Reports by mail: a real SMTP server takes them over TLS with a login; no person gets one twice or another's."""

from __future__ import annotations

import json
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope, LoginPassword
from click.testing import CliRunner

import trueload
from dashboards import mail_settings as ask
from dashboards.report import mail, pdf, sending, weekly
from dashboards.report.digest import Limits
from warehouse import outbox
from warehouse.client import open_client
from warehouse.contract.errors import BadUseError, UnreachableError
from warehouse.contract.settings import Settings
from warehouse.importer import ImportOptions
from warehouse.loading import importers, load_files
from warehouse.store import Store, open_store

LIMITS = Limits(rows=10, findings=3, pages_url="https://gpu.example.org/")
PASSWORD = "swordfish-9"
HOSTILE = 'evil\r\nBcc: all@example.org\r\n\r\n<script>alert("x")</script> http://evil.example'


@dataclass
class Box:
    """What the server took, and what it was told to do with the next mails."""

    taken: list[tuple[list[str], EmailMessage]] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)

    async def handle_DATA(self, _server: object, _session: object, envelope: Envelope) -> str:  # noqa: N802 - its name
        answer = self.answers.pop(0) if self.answers else "250 taken"
        if answer.startswith("250"):
            content: Any = message_from_bytes(envelope.content or b"", policy=policy.default)  # type: ignore[arg-type]
            self.taken.append((list(envelope.rcpt_tos), content))
        return answer

    def addresses(self) -> list[str]:
        return sorted(address for addresses, _ in self.taken for address in addresses)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Controller, Box, Path]]:
    """Give a mail server that wants TLS and a login, and the file of its authority."""
    folder = tmp_path_factory.mktemp("smtp")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    box = Box()

    def authenticate(_server: object, _session: object, _envelope: object, _way: str, given: object) -> AuthResult:
        good = isinstance(given, LoginPassword) and given.password == PASSWORD.encode()
        return AuthResult(success=good, handled=False)

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    controller = Controller(
        box,
        hostname="127.0.0.1",
        port=port,
        tls_context=context,
        require_starttls=True,
        auth_required=True,
        authenticator=authenticate,
    )
    controller.start()
    yield controller, box, folder / "ca.pem"
    controller.stop()


@pytest.fixture
def box(server: tuple[Controller, Box, Path]) -> Box:
    """Give the server's box, empty."""
    found = server[1]
    found.taken.clear()
    found.answers.clear()
    return found


@pytest.fixture
def settings(server: tuple[Controller, Box, Path], tmp_path: Path) -> dict[str, object]:
    """Give the settings of a site that mails to everybody."""
    controller, _, authority = server
    (tmp_path / "password").write_text(f"{PASSWORD}\n", encoding="utf-8")
    identity = tmp_path / "who.toml"
    identity.write_text('[users.ben]\nmail = "b@example.org"\n[leads.carol]\naccounts = ["m*"]\n', encoding="utf-8")
    return {
        ask.SMTP_HOST.name: "127.0.0.1",
        ask.SMTP_PORT.name: controller.port,
        ask.SMTP_CA_FILE.name: str(authority),
        ask.SMTP_USER.name: "trueload",
        ask.SMTP_PASSWORD_FILE.name: str(tmp_path / "password"),
        ask.SENDER.name: "gpu@example.org",
        ask.ADDRESS_TEMPLATE.name: "{user}@example.org",
        ask.OPERATORS.name: ("ops@example.org",),
        ask.AUDIENCES.name: ("operator", "lead", "user"),
        "identity.file": str(identity),
    }


class Told:
    """Answers with the week written by hand, keeps mails in a real store, remembers on whose behalf it was asked."""

    def __init__(self, document: dict[str, Any], store: Store, person: str | None = None) -> None:
        self.document, self.store, self.person = document, store, person
        self.behalf: list[tuple[str, tuple[str, ...]]] = []

    def ask(self, _question: str, parameters: Mapping[str, str]) -> dict[str, Any]:
        return {**self.document, "audience": parameters["audience"], "for": self.person}

    def on_behalf_of(self, name: str, accounts: Sequence[str] = ()) -> Any:
        self.behalf.append((name, tuple(accounts)))
        return Told(self.document, self.store, name)

    def mail(self, action: str, asked: Mapping[str, object]) -> dict[str, object]:
        return outbox.act(self.store, action, asked)


@pytest.fixture
def told(documents: dict[str, Any], tmp_path: Path) -> Iterator[Told]:
    """Give a week with users amy and ben, accounts ml and bio."""
    week = documents["weekly"]
    for grouping, names in (("by_user", ("amy", "ben")), ("by_account", ("ml", "bio"))):
        week["waste"][grouping] = [{**week["waste"][grouping][0], "key": name} for name in names]
    store = open_store(tmp_path / "data", create=True)
    yield Told(week, store)
    store.close()


def run(told: Told, settings: Mapping[str, object]) -> tuple[dict[str, int], list[str]]:
    lines: list[str] = []
    chosen = Settings(settings)
    with sending.smtp(chosen) as hand_over:
        counts = sending.Run(told, chosen, hand_over, lines.append).week({})
    return dict(counts), lines


def test_each_gets_the_own_report_once(told: Told, box: Box, settings: dict[str, object]) -> None:
    counts, lines = run(told, settings)
    assert counts == {"sent": 4}, lines
    assert box.addresses() == ["amy@example.org", "b@example.org", "carol@example.org", "ops@example.org"]
    assert told.behalf == [("carol", ("ml",)), ("amy", ()), ("ben", ())]
    again, lines = run(told, settings)
    assert again == {"kept back": 4}
    assert all("already sent" in line for line in lines)
    assert len(box.taken) == 4


def test_a_mail_has_text_html_with_its_charts_and_the_paper(told: Told, box: Box, settings: dict[str, object]) -> None:
    run(told, {**settings, ask.AUDIENCES.name: ("operator",)})
    [(_, taken)] = box.taken
    text = taken.get_body(("plain",))
    html = taken.get_body(("html",))
    assert text is not None
    assert html is not None
    assert "440.0" in text.get_content()
    assert max(len(line) for line in text.get_content().splitlines()) <= 80
    page = html.get_content()
    images = [one for one in taken.walk() if one.get_content_type() == "image/png"]
    assert len(images) == 2
    for image in images:
        assert f'src="cid:{image["Content-ID"].strip("<>")}"' in page
        assert image.get_content().startswith(b"\x89PNG")
    assert "<svg" not in page
    assert len(page.encode()) < 90_000
    assert [one.get_filename() for one in taken.iter_attachments()] == ["gpu-time-2026-W44.pdf"]
    assert (
        taken["Message-ID"]
        == f"<{outbox.mail_id('weekly/2026-W44', 'operator', 'ops@example.org')}.trueload@example.org>"
    )
    assert taken["Auto-Submitted"] == "auto-generated"
    assert "mailto:gpu@example.org" in taken["List-Unsubscribe"]


def test_what_users_wrote_adds_no_header_and_plants_no_link(documents: dict[str, Any]) -> None:
    week = documents["weekly"]
    week["recommendations"]["recommendations"][0].update(title=HOSTILE, action=HOSTILE, evidence=[HOSTILE])
    week["waste"]["by_user"][0]["key"] = HOSTILE
    envelope = mail.Envelope("gpu@example.org", "amy@example.org", "m1", "{week} {headline}")
    found = mail.message(week, LIMITS, envelope, None)
    assert "Bcc" not in found
    html, text = found.get_body(("html",)), found.get_body(("plain",))
    assert html is not None
    assert text is not None
    for content in (html.get_content(), text.get_content()):
        assert "http://evil" not in content
        assert "https://gpu.example.org/recommendations?id=r-release-1" in content
    assert "<script>" not in html.get_content()
    assert bytes(found).isascii()


@pytest.mark.parametrize("template", ["{who}", "{week.x}", "{0}", "{", "{week!z}"])
def test_a_subject_that_cannot_be_filled_in_is_refused(documents: dict[str, Any], template: str) -> None:
    envelope = mail.Envelope("gpu@example.org", "amy@example.org", "m1", template)
    with pytest.raises(BadUseError, match=r"may name \{week\} and \{headline\} alone"):
        mail.message(documents["weekly"], LIMITS, envelope, None)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "amy",
        "amy@",
        "@x",
        "a b@x.org",
        "amy@x.org, ben@x.org",
        "amy@x.org\r\nBcc: b@x.org",
        "ümy@x.org",
        "a@x.org>",
    ],
)
def test_what_is_no_address_gets_no_mail(address: str) -> None:
    assert not mail.usable(address)
    assert mail.usable("amy.o-hara+gpu@mail.example.org")


def test_what_would_save_too_little_is_kept_back(told: Told, box: Box, settings: dict[str, object]) -> None:
    counts, _ = run(told, {**settings, ask.FLOOR_GPU_HOURS.name: 1000.0})
    assert counts == {"sent": 1, "kept back": 3}
    assert box.addresses() == ["ops@example.org"]
    kept: Any = outbox.act(told.store, "list", {})["mails"]
    assert {row["reason"] for row in kept if row["state"] == "suppressed"} == {
        "nothing to advise above mail.floor_gpu_hours"
    }


def test_who_is_excluded_or_wants_none_is_left_alone(told: Told, box: Box, settings: dict[str, object]) -> None:
    outbox.act(told.store, "refuse", {"recipient": "ben"})
    run(told, {**settings, ask.EXCLUDE_USERS.name: ("am*",), ask.EXCLUDE_ACCOUNTS.name: ("ml",)})
    assert box.addresses() == ["ops@example.org"]


def test_who_has_no_address_is_named(told: Told, box: Box, settings: dict[str, object]) -> None:
    counts, lines = run(told, {**settings, ask.ADDRESS_TEMPLATE.name: ""})
    assert counts == {"sent": 2, "kept back": 2}
    assert "user amy: kept back, no mail address is known" in lines
    assert box.addresses() == ["b@example.org", "ops@example.org"]


def test_what_the_server_refuses_is_tried_again_next_time(told: Told, box: Box, settings: dict[str, object]) -> None:
    only = {**settings, ask.AUDIENCES.name: ("operator",)}
    box.answers[:] = ["552 too large"]
    counts, lines = run(told, only)
    assert counts == {"failed": 1}
    assert "552" in lines[0]
    assert run(told, only)[0] == {"sent": 1}


def test_a_connection_that_breaks_on_the_way_sends_nothing_twice(told: Told, settings: dict[str, object]) -> None:
    chosen = Settings({**settings, ask.AUDIENCES.name: ("operator",)})

    def broken(_message: EmailMessage, _addresses: Sequence[str]) -> None:
        raise ConnectionResetError("gone")

    counts = sending.Run(told, chosen, broken, lambda _line: None).week({})
    assert dict(counts) == {"uncertain": 1}
    after, lines = run(told, chosen.values)
    assert after == {"kept back": 1}
    assert "--release" in lines[0]


def test_a_dry_run_claims_and_sends_nothing(told: Told, settings: dict[str, object]) -> None:
    lines: list[str] = []
    counts = sending.Run(told, Settings(settings), None, lines.append).week({})
    assert dict(counts) == {"would be sent": 4}
    assert "user amy: would be sent to amy@example.org" in lines
    assert outbox.act(told.store, "list", {})["mails"] == []


def test_a_copy_goes_blind_and_only_of_what_people_get(told: Told, box: Box, settings: dict[str, object]) -> None:
    run(told, {**settings, ask.COPY_TO.name: ("ops@example.org",), ask.AUDIENCES.name: ("operator", "lead")})
    lead = next(one for one in box.taken if "carol@example.org" in one[0])
    assert lead[0] == ["carol@example.org", "ops@example.org"]
    assert "ops@" not in str(lead[1]["To"])
    assert sorted(len(addresses) for addresses, _ in box.taken) == [1, 2]


@pytest.mark.parametrize(
    ("other", "error", "words"),
    [
        ({ask.SMTP_HOST.name: ""}, BadUseError, r"set mail\.smtp_host and mail\.sender"),
        ({ask.SENDER.name: "x"}, BadUseError, r"set mail\.smtp_host and mail\.sender"),
        ({ask.SMTP_CA_FILE.name: "/nowhere/ca.pem"}, BadUseError, r"mail\.ca_file"),
        ({ask.SMTP_CA_FILE.name: ""}, UnreachableError, "certificate"),
        ({ask.SMTP_PASSWORD_FILE.name: "/nowhere"}, BadUseError, r"mail\.password_file: /nowhere cannot be read"),
        ({ask.SMTP_STARTTLS.name: False}, BadUseError, "does not travel in the clear"),
        ({ask.SMTP_USER.name: ""}, None, ""),
        ({ask.AUDIENCES.name: ("boss",)}, BadUseError, r"mail\.audiences: 'boss'"),
    ],
)
def test_settings_that_cannot_be_used_say_which(
    told: Told, settings: dict[str, object], other: dict[str, object], error: type[Exception] | None, words: str
) -> None:
    if error is None:  # the server wants a login, and says so of each mail
        assert run(told, {**settings, **other})[0] == {"failed": 4}
        return
    with pytest.raises(error, match=words):
        run(told, {**settings, **other})


def test_a_wrong_password_is_said_and_sends_nothing(
    told: Told, box: Box, settings: dict[str, object], tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("wrong", encoding="utf-8")
    with pytest.raises(UnreachableError, match="535"):
        run(told, settings)
    assert box.taken == []


def test_mails_go_out_on_work_days() -> None:
    free = Settings({ask.HOLIDAYS.name: ("2026-11-05",)})
    assert [sending.is_sending_day(date(2026, 11, day), free) for day in range(2, 9)] == [
        *(True, True, True),
        False,
        True,
        *(False, False),
    ]
    with pytest.raises(BadUseError, match=r"mail\.work_days: 'monday'"):
        sending.is_sending_day(date(2026, 11, 2), Settings({ask.WORK_DAYS.name: ("monday",)}))
    with pytest.raises(BadUseError, match=r"mail\.holidays"):
        sending.is_sending_day(date(2026, 11, 2), Settings({ask.HOLIDAYS.name: ("Christmas",)}))


def test_the_paper_holds_the_words_and_fetches_nothing(documents: dict[str, Any], tmp_path: Path) -> None:
    if shutil.which("pdftotext") is None:
        pytest.skip("needs Debian package poppler-utils")
    file = tmp_path / "report.pdf"
    file.write_bytes(pdf.to_pdf(weekly.render(documents["weekly"], "html", LIMITS)))
    words = subprocess.run(["pdftotext", "-layout", str(file), "-"], capture_output=True, text=True, check=True).stdout
    for expected in ("GPU time in week 2026-W44", "440.0", 'Release the GPUs of notebook <script>alert("x")'):
        assert expected in words
    assert re.search(r"1\s*/\s*\d", words)
    hostile = '<img src="http://127.0.0.1:9/x.png"><link rel="stylesheet" href="file:///etc/passwd"><p>words</p>'
    assert pdf.to_pdf(hostile).startswith(b"%PDF")


def test_the_commands_print_a_persons_week_and_list_the_mails(
    tmp_path: Path, box: Box, settings: dict[str, Any]
) -> None:
    data, jobs = tmp_path / "site", tmp_path / "jobs.csv"
    rows = [
        f"{at},train,{user},{account},1,2026-11-02T00:00:00Z,2026-11-03T00:00:00Z,0.05"
        for at, user, account in ((1, "amy", "ml"), (2, "ben", "bio"))
    ]
    header = "job_id,name,user,account,gpu_count,start_at,end_at,driver_util_ratio"
    jobs.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    client = open_client(data, trueload.answers(), Settings(), create=True)
    load_files(client, importers()["jobs_csv"], [jobs], ImportOptions("c", "UTC"))
    client.close()
    config = tmp_path / "trueload.toml"
    sections: dict[str, list[str]] = {}
    for name, value in {**settings, ask.AUDIENCES.name: ("operator",)}.items():
        section, _, key = name.partition(".")
        sections.setdefault(section, []).append(
            f"{key} = {json.dumps(list(value) if isinstance(value, tuple) else value)}"
        )
    config.write_text("\n".join(f"[{name}]\n" + "\n".join(lines) for name, lines in sections.items()), encoding="utf-8")

    def invoke(*arguments: str) -> str:
        done = CliRunner().invoke(
            trueload.cli, ["--config", str(config), "report", *arguments, "--data", str(data)], catch_exceptions=False
        )
        assert done.exit_code == 0, done.output
        return done.stdout

    week = ("weekly", "--week", "2026-W45")
    whole = json.loads(invoke(*week, "--format", "json"))
    assert [row["key"] for row in whole["waste"]["by_user"]] == ["amy", "ben"]
    own = json.loads(invoke(*week, "--format", "json", "--audience", "user", "--name", "ben"))
    assert ([row["key"] for row in own["waste"]["by_user"]], own["audience"]) == (["ben"], "user")
    led = json.loads(invoke(*week, "--format", "json", "--audience", "lead", "--name", "carol"))
    assert [row["key"] for row in led["waste"]["by_user"]] == ["amy"]
    assert "Your GPU time in week 2026-W45" in invoke(*week, "--format", "txt", "--audience", "user", "--name", "ben")
    invoke(*week, "--format", "pdf", "--out", str(tmp_path / "r.pdf"))
    assert (tmp_path / "r.pdf").read_bytes().startswith(b"%PDF")
    assert "would be sent to ops@example.org" in invoke(*week, "--dry-run")
    assert "1 sent" in invoke(*week, "--mail", "--any-day")
    assert "1 kept back" in invoke(*week, "--mail", "--any-day")
    assert len(box.taken) == 1
    invoke("unsubscribe", "ben")
    listed = invoke("mails")
    assert "sent" in listed
    assert "want no mail: ben" in listed
    document = json.loads(invoke("mails", "--json"))
    assert [(row["recipient"], row["state"]) for row in document["mails"]] == [("ops@example.org", "sent")]
