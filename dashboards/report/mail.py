"""One report as a mail: plain text, HTML with its charts as PNG inside, the PDF beside it. Pure but for the drawing.

Mail programs drop inline SVG, so the charts travel as PNG that the HTML names by ``cid:``; the small bars of tables are
left out, for their numbers stand beside them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import formatdate
from html import escape
from typing import Any

from markupsafe import Markup

from dashboards.document import Row, part, rows
from dashboards.report import png, weekly
from dashboards.report.digest import Digest, Limits, Section
from dashboards.text import plain, unlinked
from warehouse.contract.errors import BadUseError

LONGEST_SUBJECT = 150
PNG_WIDTH = 730


@dataclass(frozen=True, slots=True)
class Envelope:
    """Who writes to whom. ``mail_id`` is the same for the same report to the same person, in every run."""

    sender: str
    to: str
    mail_id: str
    subject: str
    reply_to: str = ""
    copy_to: Sequence[str] = ()


def usable(address: str) -> bool:
    """Say whether a text is one address, and nothing that could end a header or add to it."""
    try:
        parsed = Address(addr_spec=address)
    except (ValueError, IndexError, MessageError):  # IndexError: of an address that ends too early
        return False
    return bool(parsed.username and parsed.domain) and parsed.addr_spec == address and address.isascii()


def message(document: Row, limits: Limits, envelope: Envelope, pdf: bytes | None) -> EmailMessage:
    """Make the mail of one report.

    Raises:
        BadUseError: an address cannot be one.

    """
    for address in (envelope.sender, envelope.to, *envelope.copy_to):
        if not usable(address):
            raise BadUseError(f"{address!r} is no mail address")
    digest = _unlinked(weekly.digest(document, limits))
    mail = EmailMessage()
    mail["From"], mail["To"] = envelope.sender, envelope.to
    mail["Subject"] = _subject(envelope.subject, digest)
    mail["Date"] = formatdate(usegmt=True)
    mail["Message-ID"] = f"<{envelope.mail_id}.trueload@{envelope.sender.rpartition('@')[2]}>"
    answers = envelope.reply_to or envelope.sender
    mail["Reply-To"] = answers
    mail["List-Unsubscribe"] = f"<mailto:{answers}?subject=unsubscribe%20{envelope.mail_id}>"
    mail["Auto-Submitted"] = "auto-generated"
    # Lines of HTML are long and not ASCII: not every server takes those as they are.
    mail.set_content(weekly.lay_out(digest, "txt") + _last_words(answers), cte="quoted-printable")
    charts = _charts(document, digest)
    mail.add_alternative(weekly.lay_out(_for_mail(digest, charts), "html"), subtype="html", cte="quoted-printable")
    html = mail.get_payload()[1]  # type: ignore[index] # the alternative just added
    assert isinstance(html, EmailMessage)  # noqa: S101 - for the type checker
    for chart in charts:
        html.add_related(chart.image, "image", "png", cid=f"<{chart.cid}>", filename=f"{chart.name}.png")
    if pdf is not None:
        mail.add_attachment(pdf, "application", "pdf", filename=f"gpu-time-{digest.week}.pdf")
    return mail


def _subject(template: str, digest: Digest) -> str:
    try:
        words = template.format(week=digest.week, headline=digest.headline.partition(";")[0].rstrip("."))
    except (AttributeError, KeyError, IndexError, ValueError) as cause:
        raise BadUseError(f"mail.subject: {template!r} may name {{week}} and {{headline}} alone") from cause
    return plain(words, LONGEST_SUBJECT)


def _last_words(answers: str) -> str:
    return (
        f"\n-- \nSent because you hold GPUs here, or answer for who does.\nQuestions, or no more of these: {answers}\n"
    )


@dataclass(frozen=True, slots=True)
class _Chart:
    name: str
    cid: str
    image: bytes
    alt: str

    @property
    def tag(self) -> Markup:
        words = escape(self.alt, quote=True)
        style = "width:100%;max-width:100%;height:auto"
        return Markup(f'<img src="cid:{self.cid}" alt="{words}" width="{PNG_WIDTH}" style="{style}">')  # noqa: S704 - escaped


def _charts(document: Row, digest: Digest) -> list[_Chart]:
    shares = weekly.bar_shares(part(document, "fleet"))
    lines, ticks = weekly.trend_lines(rows(part(document, "waste"), "trend"))
    whole = sum(share.value for share in shares)
    found = []
    if whole:
        alt = "GPU-hours: " + ", ".join(f"{share.word} {share.value / whole:.0%}" for share in shares)
        found.append(_chart("bar", png.stacked_bar(shares), alt))
    if digest.trend:
        found.append(_chart("trend", png.trend(lines, ticks), "GPU-hours per week; the table below has the numbers"))
    return found


def _chart(name: str, image: bytes, alt: str) -> _Chart:
    return _Chart(name, f"{name}.{hashlib.sha256(image).hexdigest()[:16]}@trueload", image, alt)


def _for_mail(digest: Digest, charts: Sequence[_Chart]) -> Digest:
    """Put the PNG in the place of the two large drawings, and leave the small ones out."""
    by_name = {chart.name: chart.tag for chart in charts}
    return replace(
        digest,
        bar=by_name.get("bar", Markup()),
        trend=by_name.get("trend", Markup()),
        findings=[replace(finding, drawing=Markup()) for finding in digest.findings],
        groups=[_bare(section) for section in digest.groups],
        traced=digest.traced and _bare(digest.traced),
    )


def _unlinked(value: Any) -> Any:
    """Go through a digest and part, in every text but our own addresses, what a mail program would make a link of."""
    if isinstance(value, Markup):
        return value
    if isinstance(value, str):
        return unlinked(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_unlinked(item) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        changed = {one.name: _unlinked(getattr(value, one.name)) for one in fields(value) if one.name != "address"}
        return replace(value, **changed)
    return value


def _bare(section: Section) -> Section:
    return replace(section, lines=[replace(line, drawing=Markup()) for line in section.lines])
