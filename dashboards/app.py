"""The Streamlit entry script: finds the pages, draws the menu and the period, and frames whatever a page draws.

Started by ``trueload up``; the directory of the store comes in the environment as TRUELOAD_DATA.
"""

from __future__ import annotations

from dashboards.session import run

run()
