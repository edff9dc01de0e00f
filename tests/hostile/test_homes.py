"""A path in the home folder of a user whom this machine does not know."""

from __future__ import annotations

from unittest.mock import MagicMock, Mock

import pytest

import nbkit
from nbkit.datasets.find import find
from nbkit.datasets.packing import pack
from nbkit.errors import ConfigError
from nbkit.launch.code.entry import script_entry
from nbkit.questions.concurrent_jobs.copies import copies_of
from nbkit.questions.input_pipeline.packs import files_folder
from nbkit.readspeed import measure
from nbkit.telemetry.storage import describe_storage
from nbkit.worker.weights import load

UNKNOWN = "~nosuchuser/x"

CALLS = [
    ("data", lambda folder: nbkit.launch(data=UNKNOWN)),
    ("data", lambda folder: find(UNKNOWN)),
    ("data", lambda folder: files_folder(UNKNOWN, 1)),
    ("copies", lambda folder: copies_of(str(folder), [UNKNOWN], 2)),
    ("weights", lambda _: load(None, Mock(weights=UNKNOWN), MagicMock())),
    ("folder", lambda folder: pack(folder, UNKNOWN, "tfrecord")),
    ("path", lambda folder: measure(UNKNOWN)),
    ("path", lambda folder: describe_storage(UNKNOWN)),
    ("script", lambda folder: script_entry(UNKNOWN, [], {})),
]


@pytest.mark.parametrize(
    ("name", "call"),
    CALLS,
    ids=[f"{place} {name}" for place, (name, _) in enumerate(CALLS)],
)
def test_it_is_named_with_what_it_was_given_for(tmp_path, name, call):
    with pytest.raises(ConfigError) as caught:
        call(tmp_path)

    said = f"{name}={UNKNOWN!r}: home folder ~nosuchuser is unknown on this host"
    assert str(caught.value).startswith(said)
