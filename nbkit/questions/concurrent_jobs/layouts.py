"""Layouts of concurrent jobs and their settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class JobSetting:
    """Under which conditions the jobs of a layout run."""

    storage: str
    """``shared``, or ``separate``: each job reads its own copy."""
    pinned: bool
    """Whether each job has separate CPUs."""

    @property
    def name(self) -> str:
        """Such as ``pinned``, for a legend."""
        return ", ".join(self._special) or "not pinned"

    @property
    def suffix(self) -> str:
        """What the name of an arm has of it, such as `` (pinned)``."""
        return f" ({', '.join(self._special)})" if self._special else ""

    @property
    def _special(self) -> list[str]:
        separate = ["separate"] if self.storage == "separate" else []
        return [*separate, "pinned"] if self.pinned else separate


@dataclass(frozen=True)
class Planned:
    """One layout in one setting."""

    sizes: tuple[int, ...]
    """Devices of each job; a single one has nothing beside it."""
    setting: JobSetting

    @property
    def name(self) -> str:
        """Such as ``1,1 (pinned)``."""
        return f"{','.join(map(str, self.sizes))}{self.setting.suffix}"

    @property
    def alone(self) -> list[str]:
        """Of each job, the arm that is the same job alone."""
        return [f"{size} alone{self.setting.suffix}" for size in self.sizes]

    @property
    def jobs(self) -> list[str]:
        """The arm of each job."""
        if len(self.sizes) == 1:
            return self.alone
        layout = ",".join(map(str, self.sizes))
        numbers = range(1, len(self.sizes) + 1)
        return [f"{layout} job {number}{self.setting.suffix}" for number in numbers]

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Planned:
        """Return it from what a study keeps of it."""
        return cls(tuple(facts["sizes"]), JobSetting(**facts["setting"]))
