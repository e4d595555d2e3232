"""The report as PDF: the HTML of the report, laid out on paper by WeasyPrint. It fetches nothing from anywhere."""

from __future__ import annotations

import logging

from warehouse.contract.errors import BadUseError

PAPER = (
    "@page { size: A4; margin: 14mm 12mm 16mm; "
    "@bottom-right { content: counter(page) ' / ' counter(pages); font: 8pt sans-serif; color: #66707b } } "
    "body { background: #fff !important } body > div { max-width: none !important; padding: 0 !important } "
    "h2, h2 + p { break-after: avoid } tr, pre, svg { break-inside: avoid } thead { display: table-header-group } "
    "td, pre, p { overflow-wrap: anywhere } "
    "table { font-size: 8pt !important } p, div { font-size: 9pt } h1 { font-size: 16pt !important }"
)


def to_pdf(html: str) -> bytes:
    """Give a page of HTML as PDF.

    Raises:
        BadUseError: WeasyPrint, or the Pango of the system, is not installed.

    """
    try:
        from weasyprint import CSS, HTML
        from weasyprint.urls import URLFetcher
    except (ImportError, OSError) as cause:  # OSError: a library of the system is missing
        raise BadUseError(
            f"a PDF needs WeasyPrint: pip install 'trueload[report]', and the system's Pango ({cause})"
        ) from cause
    # The page is written for mail programs: what they need and paper does not know is no news.
    logging.getLogger("weasyprint").setLevel(logging.ERROR)
    return bytes(
        HTML(string=html, url_fetcher=URLFetcher(allowed_protocols=())).write_pdf(stylesheets=[CSS(string=PAPER)])
    )
