"""What `make bench` calls a failure."""

from tests.bench.rows import ratio_row, row, within


def test_a_row_that_does_not_resolve_its_limit_counts_as_over():
    well = row("a", 1.0, "s", 2.0, "")
    assert within([well, ratio_row("b", [2.0] * 5, [1.0, 1.1] * 3, 1.0, "")])

    open_one = ratio_row("c", [1.0, 2.0] * 3, [1.0, 2.0] * 3, 1.0, "")

    assert open_one["ok"] is None
    assert not within([well, open_one])
    assert not within([well, row("d", 3.0, "s", 2.0, "")])
