"""How the hosts of a run find each other when users start torchrun manually."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, field_validator

from nbkit.config.model import Model

_HOST = re.compile(r"[\w.\-]*|\[[0-9A-Fa-f:.]+\]")


class ManualConfig(Model):
    """Where the hosts of ``engine="manual"`` meet.

    References
    ----------
    https://docs.pytorch.org/docs/stable/elastic/run.html (``--rdzv-endpoint``)
    """

    rendezvous_host: str = ""
    """One of the run's hosts, by a name or address that all of them know (IPv6 in
    brackets); empty is the host that launches, which must then be one of them."""
    rendezvous_port: Annotated[int, Field(ge=1_024, le=65_535)] | None = None
    """A free port of that host; None takes one that is free here, or 29400 (torchrun's
    own) on another host."""

    @field_validator("rendezvous_host")
    @classmethod
    def _is_a_host(cls, value: str) -> str:
        if not _HOST.fullmatch(value):
            message = "is not a name or address of a host; the port has its own field"
            raise ValueError(message)
        return value
