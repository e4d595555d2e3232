"""How a long-running command writes its log: lines for people, or one JSON object a line for collectors of logs."""

from __future__ import annotations

import json
import logging

from warehouse.contract.errors import BadUseError
from warehouse.contract.units import iso

TEXT = "%(asctime)s %(name)s %(levelname)s %(message)s"


class JsonFormatter(logging.Formatter):
    """One line of JSON a record: ``at`` (ISO 8601 UTC), ``level``, ``logger``, ``message``, ``error``."""

    def format(self, record: logging.LogRecord) -> str:
        """Give the line; line breaks within are escaped, so that no message can pass for another."""
        error = self.formatException(record.exc_info) if record.exc_info else None
        return json.dumps(
            {
                "at": iso(record.created),
                "level": record.levelname,
                "logger": record.name,
                "message": record.getMessage(),
                "error": error,
            },
            default=str,
        )


def configure(log_format: str) -> None:
    """Log to stderr from the level of information on.

    Raises:
        BadUseError: there is no such format.

    """
    if log_format not in ("text", "json"):
        raise BadUseError(f"server.log_format: {log_format!r}; there are text and json")
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else logging.Formatter(TEXT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
