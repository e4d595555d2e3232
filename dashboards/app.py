"""The Streamlit entry script: finds the pages, draws the menu and the period, and frames whatever a page draws.

Started by ``trueload up``; the directory of the store comes in the environment as TRUELOAD_DATA.
"""

from __future__ import annotations

import logging

from dashboards.session import run

_LOG = logging.getLogger("trueload")
if not _LOG.handlers:  # this script runs anew with every click
    _LOG.setLevel(logging.INFO)
    _LOG.addHandler(logging.StreamHandler())
    _LOG.handlers[0].setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    _LOG.propagate = False

run()
