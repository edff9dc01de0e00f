"""Lines between a supervisor and the agents of its nodes."""

from __future__ import annotations

import pytest

from nbkit.launch.slurm.messages import beats_lines, line, parse, read_beats
from nbkit.store.heartbeat import Beat, Phase

LIMIT = 1_024
"""Of a line that srun hands on whole."""


def test_a_message_comes_back_as_it_was():
    text = line("ended", agent=1, rank=3, exit_code=None, signal="SIGKILL")

    assert text.endswith(b"\n")
    assert parse(text) == {
        "kind": "ended",
        "agent": 1,
        "rank": 3,
        "exit_code": None,
        "signal": "SIGKILL",
    }


@pytest.mark.parametrize(
    "text",
    ["x" * 5_000, "ö" * 5_000, '"\\\n' * 2_000, "☃\x00" * 1_000],
    ids=["plain", "umlauts", "quoted", "snow"],
)
def test_a_text_that_is_too_long_loses_its_end_and_nothing_else(text):
    sent = line("refused", agent=7, reason=text)

    assert len(sent) < LIMIT
    assert sent.count(b"\n") == 1
    message = parse(sent)
    assert message is not None
    assert (message["kind"], message["agent"]) == ("refused", 7)
    assert len(message["reason"]) > 50
    assert text.startswith(message["reason"])


def test_several_long_texts_fit_together():
    sent = line("ready", agent=0, name="n" * 2_000, host="h" * 2_000, port=1)

    assert len(sent) < LIMIT
    message = parse(sent)
    assert message is not None
    assert (message["kind"], message["agent"], message["port"]) == ("ready", 0, 1)


@pytest.mark.parametrize("ranks", [1, 2, 16, 17, 300])
def test_where_many_ranks_are_takes_several_lines(ranks):
    beats = [
        Beat(10**12 + rank, Phase.COLLECTIVE, 10**15, 10**12) for rank in range(ranks)
    ]

    lines = beats_lines(511, beats)

    assert all(len(one) < LIMIT for one in lines)
    found: dict[int, Beat] = {}
    for one in lines:
        message = parse(one)
        assert message is not None
        assert message["agent"] == 511
        found.update(enumerate(read_beats(message), message["first"]))
    assert found == dict(enumerate(beats))


@pytest.mark.parametrize(
    "text",
    [b"Loading cuda/12.4\n", b"", b"[1, 2]", b"7", b'{"a": 1}', b"\xff\xfe", b'{"kind'],
)
def test_what_others_print_is_no_message(text):
    assert parse(text) is None
