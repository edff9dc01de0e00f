"""A plug-in that is broken says what is wrong with it, and in which package."""

from __future__ import annotations

import pytest

from nbkit import registry
from nbkit.errors import ConfigError

MODULES = {
    "broken_import": "import no_such_package\n",
    "broken_name": "",
    "broken_code": "raise ValueError('no licence')\n",
    "broken_calls": (
        "def hidden(hidden_size, num_classes): pass\n"
        "class Half:\n"
        "    def check(self, config): pass\n"
        "    def submit(self, paths, attempt, wanted): pass\n"
        "def fine(num_classes, weights=None): pass\n"
    ),
}
ENTRIES = """
[nbkit.models]
imports = broken_import:model
lacks = broken_name:model
raises = broken_code:model
fine = broken_calls:fine
twice = broken_calls:fine

[nbkit.engines]
half = broken_calls:Half
"""
OTHER = """
[nbkit.models]
fine = broken_calls:fine
twice = broken_calls:hidden
"""


@pytest.fixture(autouse=True)
def broken(tmp_path, monkeypatch):
    """Install two distributions, here and in every child."""
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    for name, entries in (("one", ENTRIES), ("other", OTHER)):
        info = tmp_path / f"{name}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {name}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(entries)
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "store"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    registry.forget()
    yield
    registry.forget()


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        ("models", "imports", r"of one, cannot be imported \(ModuleNotFoundError: No "),
        (
            "models",
            "lacks",
            r"broken_name:model of one, .*\(AttributeError: .*model",
        ),
        ("models", "raises", r"\(ValueError: no licence\). Fix or uninstall"),
        ("models", "twice", r"2 times, .*fine of one and by .*hidden of other. Ren"),
        ("engines", "half", r"lacks notify, reap"),
    ],
)
def test_a_broken_plugin_is_named_with_its_package(kind, name, said):
    with pytest.raises(ConfigError, match=said):
        registry.resolve(kind, name)


def test_two_packages_may_mean_the_same_by_a_name():
    assert registry.resolve("models", "fine").__name__ == "fine"
