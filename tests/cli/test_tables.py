"""Tables of the documentation are those that the code makes."""

from __future__ import annotations

import pytest

from nbkit.cli.tables import TABLES, with_table
from nbkit.config import ExperimentConfig
from nbkit.config.fields import changed_fields, described_fields


@pytest.mark.parametrize("name", TABLES)
def test_tables_in_documents(name, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # argparse's, from Python 3.14 on
    file, make = TABLES[name]
    text = file.read_text()

    same = text == with_table(text, name, make())
    assert same, "write it again: python -m nbkit.cli.tables"


def test_with_table():
    text = "a\n<!-- t -->\nold\n<!-- /t -->\nb\n"

    assert with_table(text, "t", "| new |") == (
        "a\n<!-- t -->\n| new |\n<!-- /t -->\nb\n"
    )


def test_configuration_table():
    fields = described_fields()

    names = list(dict.fromkeys(field.path.partition(".")[0] for field in fields))
    assert names == list(ExperimentConfig.model_fields)
    assert all(field.group and field.meaning.endswith(".") for field in fields)


def test_changed_fields():
    config = ExperimentConfig(
        model="vgg16", loader_config={"num_workers": 3}, step_epochs=(1, 2)
    )
    stored = {**config.model_dump(mode="json"), "of_a_later_version": 1}

    assert changed_fields(stored) == {
        "model": "vgg16",
        "step_epochs": [1.0, 2.0],
        "loader_config.num_workers": 3,
        "of_a_later_version": 1,
    }
    assert changed_fields(ExperimentConfig().model_dump(mode="json")) == {}
