"""Choices that stand in the address of a page by their key, not by the words shown, so that links stay true.

(Streamlit's own binding of widgets to the address writes the words.)
"""

from __future__ import annotations

from collections.abc import Collection

import streamlit as st


def given(name: str, options: Collection[str]) -> str | None:
    """Give the option that the address names; None when it names none, or one that is not there."""
    value = st.query_params.get(name)
    return value if value in options else None


def keep(name: str, value: str | None) -> None:
    """Write a choice into the address, or take it out."""
    if value is None:
        st.query_params.pop(name, None)
    elif st.query_params.get(name) != value:
        st.query_params[name] = value
