"""What a supervisor and the agents of its nodes tell each other, a line each.

srun carries the lines: what the supervisor writes to its input goes to every agent, and
what agents print comes out of its output. srun cuts lines of more than a kilobyte.
"""

from __future__ import annotations

import json
from typing import Any

from nbkit.store.heartbeat import Beat, Phase

_LONGEST = 1_000
_BEATS_PER_LINE = 16
_LONGEST_TEXT = 700


def line(kind: str, **values: Any) -> bytes:
    """Return a message as a line; text that is too long loses its end."""
    message = {"kind": kind, **values}
    longest = _LONGEST_TEXT
    while len(encoded := json.dumps(message).encode()) >= _LONGEST and longest:
        message = {
            name: value[:longest] if isinstance(value, str) else value
            for name, value in message.items()
        }
        longest //= 2  # a sign may take twelve bytes
    return encoded + b"\n"


def parse(text: bytes) -> dict[str, Any] | None:
    """Return the message of a line; None if the line is something else.

    A module that a cluster loads may print to the same output.
    """
    try:
        message = json.loads(text)
    except ValueError:
        return None
    return message if isinstance(message, dict) and "kind" in message else None


def beats_lines(agent: int, beats: list[Beat]) -> list[bytes]:
    """Return where the ranks of a node are, as few lines as fit."""
    return [
        line(
            "beats",
            agent=agent,
            first=first,
            beats=[
                [beat.step, int(beat.phase), beat.beats, beat.finished_step]
                for beat in beats[first : first + _BEATS_PER_LINE]
            ],
        )
        for first in range(0, len(beats), _BEATS_PER_LINE)
    ]


def read_beats(message: dict[str, Any]) -> list[Beat]:
    """Return the positions of a message."""
    return [Beat(step, Phase(phase), *rest) for step, phase, *rest in message["beats"]]
