"""One way in which a script ends, and what plain Python or torchrun make of it."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Case"]


@dataclass(frozen=True)
class Case:
    """One way to end, and what is there afterwards."""

    name: str
    script: str
    ends: tuple[int | str | None, ...] = (0,)
    """Exit code of each rank, or the name of the signal; None of one that torchrun and
    nbkit end because of another."""
    files: dict[str, str] = field(default_factory=dict)
    """Content of the files left behind in the working folder, as Latin-1, by name."""
    prints: str = ""
    """Part of what the last line on standard error of the failing rank says."""
    returns: object = None
    """What its function returns, if it ends well."""

    @property
    def ranks(self) -> int:
        """How many there are."""
        return len(self.ends)

    @property
    def is_function(self) -> bool:
        """Whether the script defines a function ``train``, to be called last."""
        return "def train(" in self.script

    @property
    def failing(self) -> int | None:
        """The rank that ends by itself with a failure."""
        bad = [rank for rank, end in enumerate(self.ends) if end not in (0, None)]
        return bad[0] if bad else None
