"""Findings: every kind explained once, the worst first, readable as text and page."""

from __future__ import annotations

from nbkit.review.findings import Audit, AuditFinding, codes


def finding(code, subject="a run", evidence="12 of 13", url=None):
    return AuditFinding.of(code, subject, "a claim", evidence, url)


def test_codes_complete():
    assert len(codes()) > 30
    for code in codes().values():
        assert code.severity in ("error", "warning", "note"), code
        for sentence in (code.why, code.action):
            assert sentence[0].isupper(), code
            assert sentence.endswith("."), code
        assert code.source is None or code.source.startswith("https://"), code


def test_audit_order():
    note, warning, error = map(finding, ("cpu", "layout", "mean"))
    audit = Audit("these", [note, warning, error, warning])

    assert list(audit) == [error, warning, note]
    assert (audit.errors, audit.warnings, audit.notes) == ([error], [warning], [note])
    assert audit[0] is error
    assert len(audit) == 3
    assert not audit.is_clean
    assert Audit("these", [note]).is_clean
    assert audit.counts == {"mean": 1, "layout": 1, "cpu": 1}


def test_audit_text():
    audit = Audit("two runs", [finding("layout", "run a", "fp16 on V100")])
    code = codes()["layout"]

    assert str(audit).splitlines() == [
        "two runs: 1 warning.",
        "",
        f"warning [layout]: {code.title}",
        "  run a: fp16 on V100",
        f"  Why: {code.why} ({code.source})",
        f"  Fix: {code.action}",
    ]
    assert repr(audit) == str(audit)
    assert str(Audit("a run", [])) == "a run: no findings."


def test_audit_text_many_findings():
    audit = Audit("rows", [finding("layout", f"row {n}") for n in range(9)])

    assert "row 2" in str(audit)
    assert "row 3" not in str(audit)
    assert "and 6 more" in str(audit)
    assert "(9x)" in str(audit)
    assert "9 warnings" in audit.sentence


def test_audit_html():
    url = "https://example.org/a"
    page = Audit("<b>", [finding("mean", "a & b", "1 < 2", url)])._repr_html_()

    assert f'<a href="{url}">a &amp; b</a>: 1 &lt; 2' in page
    assert "&lt;b&gt;: 1 error." in page
    assert "<b>" not in page


def test_audit_summary_has_a_line_per_severity():
    layout, loss = finding("layout", "run 1"), finding("divergence", "run 1")
    few, again = finding("few-runs", "run 1"), finding("layout", "run 2")
    audit = Audit("study x", [few, layout, loss, again])
    caveats = f"Caveats: {few.title} (1 run)."

    assert Audit("study x", []).summary() == []
    assert audit.summary() == [
        f"Warnings: {layout.title} (2 runs); {loss.title} (1 run).",
        caveats,
    ]
    assert audit.summary(without=["layout", "divergence"]) == [caveats]
    assert Audit("two runs", []).summary() == ["two runs: no findings."]
