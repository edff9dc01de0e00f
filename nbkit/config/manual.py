"""Rendezvous of hosts when users start torchrun manually."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, field_validator

from nbkit.config.model import Model

_HOST = re.compile(r"[\w.\-]*|\[[0-9A-Fa-f:.]+\]")


class ManualConfig(Model):
    """Rendezvous of the hosts of ``engine="manual"``.

    References
    ----------
    https://docs.pytorch.org/docs/stable/elastic/run.html (``--rdzv-endpoint``)
    """

    rendezvous_host: str = ""
    """Rendezvous host, which must run ranks: a name or address that all hosts resolve
    (IPv6 in brackets); if empty, the launching host."""
    rendezvous_port: Annotated[int, Field(ge=1_024, le=65_535)] | None = None
    """Free port of the rendezvous host; None uses a free port if that is the launching
    host, and otherwise 29400 (torchrun's default)."""

    @field_validator("rendezvous_host")
    @classmethod
    def _is_a_host(cls, value: str) -> str:
        if not _HOST.fullmatch(value):
            message = (
                "is not a host name or address (IPv6 in brackets). Set the port in "
                "rendezvous_port"
            )
            raise ValueError(message)
        return value
