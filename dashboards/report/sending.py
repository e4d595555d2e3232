"""Who gets a week's report, and the run that sends it: each mail is claimed first, so that a crash sends none twice.

A person's report is asked for on that person's behalf: it holds what he or she may see, whoever runs this.
"""

from __future__ import annotations

import smtplib
import ssl
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dashboards import mail_settings as ask
from dashboards.document import Row, number, part, rows, text
from dashboards.report import mail, pdf, weekly
from dashboards.report.digest import Limits
from dashboards.settings import PAGES_URL, REPORT_TOP_FINDINGS, REPORT_TOP_ROWS
from warehouse.client import Client, Document
from warehouse.contract.errors import BadUseError, TrueloadError, UnreachableError
from warehouse.contract.identity import IDENTITY_FILE, Directory, read_directory
from warehouse.contract.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from email.message import EmailMessage

    from warehouse.contract.settings import Settings

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
GRANTED = "granted"
OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Letter:
    """One report for one reader: ``recipient`` is a login, or an operator's address; ``accounts`` are a lead's.

    ``address`` None: nobody said where the mail should go.
    """

    audience: str
    recipient: str
    address: str | None
    accounts: tuple[str, ...] = ()


class Mails(Protocol):
    """A client that knows which mails went out: that of a store or of a server."""

    def ask(self, question: str, parameters: Mapping[str, str]) -> Document:
        """Answer a question."""
        ...

    def on_behalf_of(self, name: str, accounts: Sequence[str] = ()) -> Client:
        """Give a client that sees what a person sees."""
        ...

    def mail(self, action: str, asked: Mapping[str, object]) -> Document:
        """Claim a mail, or say what became of it (``warehouse.outbox``)."""
        ...


def is_sending_day(today: date, settings: Settings) -> bool:
    """Say whether mails go out on a day.

    Raises:
        BadUseError: a work day or holiday of the settings cannot be read.

    """
    work_days, holidays = settings[ask.WORK_DAYS], settings[ask.HOLIDAYS]
    if unknown := [day for day in work_days if day not in DAYS]:
        raise BadUseError(f"mail.work_days: {unknown[0]!r} is none of {', '.join(DAYS)}")
    try:
        free = {date.fromisoformat(day) for day in holidays}
    except ValueError as cause:
        raise BadUseError(f"mail.holidays: {cause}; expected dates such as 2026-12-25") from cause
    return DAYS[today.weekday()] in work_days and today not in free


def letters(document: Row, directory: Directory, settings: Settings) -> list[Letter]:
    """Give who may get a report on a week, from the operators' document of it.

    Raises:
        BadUseError: an audience of the settings is unknown.

    """
    audiences = settings[ask.AUDIENCES]
    if unknown := [one for one in audiences if one not in _READERS]:
        raise BadUseError(f"mail.audiences: {unknown[0]!r} is none of {', '.join(_READERS)}")
    return [letter for one in dict.fromkeys(audiences) for letter in _READERS[one](document, directory, settings)]


def _operators(_document: Row, _directory: Directory, settings: Settings) -> Iterator[Letter]:
    for address in dict.fromkeys(settings[ask.OPERATORS]):
        yield Letter(OPERATOR, address, address)


def _leads(document: Row, directory: Directory, settings: Settings) -> Iterator[Letter]:
    held = [name for name in _keys(document, "by_account") if not _is_among(name, settings[ask.EXCLUDE_ACCOUNTS])]
    for login in directory.leads:
        accounts = directory.led_by(login, held)
        if accounts and not _is_among(login, settings[ask.EXCLUDE_USERS]):
            yield Letter("lead", login, _address(login, directory, settings), accounts)


def _users(document: Row, directory: Directory, settings: Settings) -> Iterator[Letter]:
    for login in _keys(document, "by_user"):
        if not _is_among(login, settings[ask.EXCLUDE_USERS]):
            yield Letter("user", login, _address(login, directory, settings))


_READERS: Mapping[str, Callable[[Row, Directory, Settings], Iterator[Letter]]] = {
    OPERATOR: _operators,
    "lead": _leads,
    "user": _users,
}


def _keys(document: Row, grouping: str) -> list[str]:
    found = (text(row, "key") for row in rows(part(document, "waste"), grouping))
    return [key for key in found if key is not None]


def _is_among(name: str, patterns: Sequence[str]) -> bool:
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


def _address(login: str, directory: Directory, settings: Settings) -> str | None:
    named = directory.mail(login)
    template = settings[ask.ADDRESS_TEMPLATE]
    address = named or (template.replace("{user}", login) if "{user}" in template else None)
    return address if address is not None and mail.usable(address) else None


@dataclass(frozen=True, slots=True)
class Run:
    """What a run sends with: the client, the settings, and how one mail is handed over (None: only say what would be).

    ``tell`` is given a line for each mail.
    """

    client: Mails
    settings: Settings
    hand_over: Callable[[EmailMessage, Sequence[str]], None] | None
    tell: Callable[[str], None]

    def week(self, asked: Mapping[str, str]) -> Counter[str]:
        """Send a week's reports; gives how many were ``sent``, ``failed``, ``kept back`` and ``uncertain``."""
        whole = self.client.ask("weekly", {**asked, "audience": OPERATOR})
        directory = read_directory(self.settings[IDENTITY_FILE])
        name = f"weekly/{text(whole, 'week')}"
        week = {**asked, "week": text(whole, "week") or ""}
        return Counter(self._one(letter, name, week, whole) for letter in letters(whole, directory, self.settings))

    def _one(self, letter: Letter, name: str, week: Mapping[str, str], whole: Document) -> str:
        about = {"report": name, "audience": letter.audience, "recipient": letter.recipient}
        if letter.address is None:
            return self._keep_back(about, "no mail address is known")
        if letter.audience == OPERATOR:
            document = whole
        else:
            person = self.client.on_behalf_of(letter.recipient, letter.accounts)
            document = person.ask("weekly", {**week, "audience": letter.audience})
            if not self._is_worth_it(document):
                return self._keep_back(about, "nothing to advise above mail.floor_gpu_hours")
        if self.hand_over is None:
            self.tell(f"{letter.audience} {letter.recipient}: would be sent to {letter.address}")
            return "would be sent"
        claim = self.client.mail("claim", {**about, "quiet_days": self.settings[ask.QUIET_DAYS]})
        if claim.get(GRANTED) is not True:
            self.tell(f"{letter.audience} {letter.recipient}: kept back, {claim.get('reason')}")
            return "kept back"
        return self._send(letter, document, str(claim["mail_id"]))

    def _is_worth_it(self, document: Document) -> bool:
        """Say whether any advice would save enough; a mere bound counts by what it may be at most."""
        floor = self.settings[ask.FLOOR_GPU_HOURS] * SECONDS_PER_HOUR
        found = (part(one, "saving_gpu_seconds") for one in rows(part(document, "recommendations"), "recommendations"))
        return any((number(one, "likely") or number(one, "high") or 0.0) >= floor for one in found)

    def _keep_back(self, about: Mapping[str, object], reason: str) -> str:
        if self.hand_over is not None:
            self.client.mail("suppress", {**about, "reason": reason})
        self.tell(f"{about['audience']} {about['recipient']}: kept back, {reason}")
        return "kept back"

    def _send(self, letter: Letter, document: Document, mail_id: str) -> str:
        who = f"{letter.audience} {letter.recipient}"
        assert self.hand_over is not None  # noqa: S101 - for the type checker
        try:
            message, addresses = self._message(letter, document, mail_id)
            self.hand_over(message, addresses)
        except (RefusedMailError, TrueloadError) as error:
            self.client.mail("finish", {"mail_id": mail_id, "state": "failed", "reason": str(error)})
            self.tell(f"{who}: failed, {error}")
            return "failed"
        except (OSError, smtplib.SMTPException) as error:
            # The server may have taken it before the connection broke: it stays claimed, and is never sent twice.
            self.tell(f"{who}: uncertain, {error}; see `trueload report mails`")
            return "uncertain"
        self.client.mail("finish", {"mail_id": mail_id, "state": "sent"})
        self.tell(f"{who}: sent to {letter.address}")
        return "sent"

    def _message(self, letter: Letter, document: Document, mail_id: str) -> tuple[EmailMessage, list[str]]:
        settings = self.settings
        limits = report_limits(settings)
        copies = () if letter.audience == OPERATOR else settings[ask.COPY_TO]
        envelope = mail.Envelope(
            sender=settings[ask.SENDER],
            to=str(letter.address),
            mail_id=mail_id,
            subject=settings[ask.SUBJECT],
            reply_to=settings[ask.REPLY_TO],
            copy_to=copies,
        )
        paper = None if letter.audience == "user" else pdf.to_pdf(weekly.render(document, "html", limits))
        return mail.message(document, limits, envelope, paper), [envelope.to, *copies]


def report_limits(settings: Settings) -> Limits:
    """Give how much a report shows."""
    return Limits(settings[REPORT_TOP_ROWS], settings[REPORT_TOP_FINDINGS], settings[PAGES_URL])


class RefusedMailError(Exception):
    """The mail server said for certain that it does not take a mail: it did not go out."""


@contextmanager
def smtp(settings: Settings) -> Iterator[Callable[[EmailMessage, Sequence[str]], None]]:
    """Connect to the mail server of the settings; gives what hands a mail over.

    Raises:
        BadUseError: the settings name no server or sender, or a file that cannot be read.
        UnreachableError: the server cannot be reached, is not who it should be, or refuses the login.

    """
    host, port, seconds = settings[ask.SMTP_HOST], settings[ask.SMTP_PORT], settings[ask.SMTP_SECONDS]
    if not host or not mail.usable(settings[ask.SENDER]):
        raise BadUseError("set mail.smtp_host and mail.sender: who sends the reports, and through which server")
    try:
        context = ssl.create_default_context(cafile=settings[ask.SMTP_CA_FILE] or None)
    except OSError as cause:
        raise BadUseError(f"mail.ca_file: {settings[ask.SMTP_CA_FILE]} cannot be used ({cause})") from cause
    password = _password(settings)
    try:
        server = smtplib.SMTP(host, port, local_hostname=settings[ask.SENDER].rpartition("@")[2], timeout=seconds)
    except (OSError, smtplib.SMTPException) as cause:
        raise UnreachableError(f"mail server {host}:{port} cannot be reached ({cause}); see [mail]") from cause
    with server:
        try:
            if settings[ask.SMTP_STARTTLS]:
                server.starttls(context=context)
            if password is not None:
                server.login(settings[ask.SMTP_USER], password)
        except (OSError, smtplib.SMTPException) as cause:
            raise UnreachableError(f"mail server {host}:{port}: {cause}; see [mail]") from cause
        yield lambda message, addresses: _hand_over(server, message, addresses)


def _password(settings: Settings) -> str | None:
    user, path = settings[ask.SMTP_USER], settings[ask.SMTP_PASSWORD_FILE]
    if not user:
        return None
    if not settings[ask.SMTP_STARTTLS]:
        raise BadUseError("mail.user: a password does not travel in the clear; set mail.starttls")
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as cause:
        raise BadUseError(f"mail.password_file: {path or 'none'} cannot be read ({cause})") from cause


def _hand_over(server: smtplib.SMTP, message: EmailMessage, addresses: Sequence[str]) -> None:
    """Give one mail to the server; who gets a blind copy is in the envelope alone.

    Raises:
        RefusedMailError: it was refused for certain.

    """
    try:
        refused: Mapping[str, Any] = server.send_message(message, to_addrs=list(addresses))
    except smtplib.SMTPRecipientsRefused as error:
        raise RefusedMailError(_words(error.recipients)) from error
    except (smtplib.SMTPSenderRefused, smtplib.SMTPDataError, smtplib.SMTPHeloError) as error:
        raise RefusedMailError(f"the mail server refused it: {error.smtp_code} {error.smtp_error!r}") from error
    if addresses[0] in refused:
        raise RefusedMailError(_words(refused))


def _words(refused: Mapping[str, Any]) -> str:
    return "the mail server refused " + "; ".join(f"{address}: {answer}" for address, answer in refused.items())
