"""Waiting for the threads of a form."""

from __future__ import annotations

import threading

from tests.waiting import wait_until


def wait_for_form_threads() -> None:
    """Wait until forms know presets, GPUs, partitions and what launches refuse."""
    # One may start another: what a launch refuses depends on the GPUs.
    wait_until(
        lambda: not any(it.name.startswith("form-") for it in threading.enumerate()),
        "the threads of forms",
    )
