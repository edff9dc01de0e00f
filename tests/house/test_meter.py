"""The meter counts lines and docstrings by room, and says which limit is exceeded."""

from __future__ import annotations

from tests.house.meter import excesses, measured

CODE = '''"""A module."""


def function():
    """One line.

    And more.
    """
    return """no docstring"""
'''


def test_what_is_over_its_limit_or_has_none_is_named(tmp_path):
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "one.py").write_text(CODE)
    (tmp_path / "top.py").write_text("x = 1\n")
    limits = {"lines": {"room": 8, "top": 1}, "docstring_lines": {"room": 5}}

    found = measured(tmp_path)

    assert found == {
        "lines": {"room": 9, "top": 1},
        "docstring_lines": {"room": 5, "top": 0},
        "files": {"room/one.py": 9, "top.py": 1},
    }
    assert excesses(found, limits) == ["room: 9 lines, over 8"]
    limits["lines"] = {"room": 9}
    assert excesses(found, limits) == ["top: 1 lines, over 0"]
