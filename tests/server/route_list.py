"""An extension that writes down every route of its server that speaks of nbkit."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "tests.server.route_list"}]


def _load_jupyter_server_extension(server: Any) -> None:
    # On the loop: by then the other extensions have added theirs.
    server.io_loop.add_callback(lambda: _write(server))


def _write(server: Any) -> None:
    rules = [
        rule
        for group in server.web_app.default_router.rules
        for rule in getattr(group.target, "rules", [])
    ]
    found = [
        (rule.matcher.regex.pattern, f"{rule.target.__module__}")
        for rule in rules
        if hasattr(rule.matcher, "regex")
    ]
    Path(os.environ["ROUTE_LIST"]).write_text(json.dumps(found))
