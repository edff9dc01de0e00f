"""A plug-in with models that misbehave in one known way each.

It is found the way every plug-in is: by its entry points, on PYTHONPATH.
"""

import ctypes
import itertools
import json
import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn

BAD_RANK = int(os.environ.get("BAD_RANK", "1"))
BAD_STEP = 3


class _Tiny(nn.Module):
    """A linear classifier on 4 x 4 pixels, with one known act a training step."""

    def __init__(self, num_classes: int, act=None) -> None:
        super().__init__()
        self.head = nn.Linear(48, num_classes)
        self._act = act
        self._calls = 0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.training and self._act is not None:
            self._calls += 1
            self._act(self._calls)
        pooled = nn.functional.adaptive_avg_pool2d(images, 4)
        return self.head(pooled.flatten(1))


def tiny(num_classes=1000, weights=None):
    return _Tiny(num_classes)


def slow(num_classes=1000, weights=None):
    return _Tiny(num_classes, lambda call: time.sleep(0.05))


def lingers(num_classes=1000, weights=None):
    """Takes a second for a step while its run's folder has a file ``linger``.

    In its eighth step it stays while there is a file ``stay``. Another folder is named
    by LINGERS_BY, for a run that somebody else launches.
    """
    folder = Path(os.environ.get("LINGERS_BY", sys.argv[1]))

    def linger(call):
        while call == 8 and (folder / "stay").exists():
            time.sleep(0.02)
        if (folder / "linger").exists():
            time.sleep(1)

    return _Tiny(num_classes, linger)


def meets(num_classes=1000, weights=None):
    """Is slow, and waits in each step for the jobs that were started with it."""

    def meet(call):
        while not _have_met(Path(sys.argv[1]), call):
            time.sleep(0.01)
        time.sleep(0.05)

    return _Tiny(num_classes, meet)


def raises(num_classes=1000, weights=None):
    return _Tiny(num_classes, _once(_raise))


def sleeps(num_classes=1000, weights=None):
    return _Tiny(num_classes, _once(lambda: time.sleep(3600)))


def dawdles(num_classes=1000, weights=None):
    """Keeps its rank from being ready; SIGTERM ends it, as it does while ranks meet."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    Path(sys.argv[1], f"dawdles_{os.environ['RANK']}").touch()
    time.sleep(3600)


def crashes(num_classes=1000, weights=None):
    return _Tiny(num_classes, _once(lambda: ctypes.string_at(0)))


def ponders(num_classes=1000, weights=None):
    model = _Tiny(num_classes)

    def ponder(module, images):
        if not module.training and os.environ["NBKIT_ATTEMPT"] == "0":
            time.sleep(0.1)

    model.register_forward_pre_hook(ponder)
    return model


def lags(num_classes=1000, weights=None):
    """Computes for 40 ms longer on one rank, in every step."""

    def burn(call):
        end = time.thread_time() + 0.04
        while int(os.environ["RANK"]) == BAD_RANK and time.thread_time() < end:
            pass

    return _Tiny(num_classes, burn)


def stubborn(num_classes=1000, weights=None):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return slow(num_classes)


def dies_once(num_classes=1000, weights=None):
    def die(call):
        first = os.environ["NBKIT_ATTEMPT"] == "0"
        if first and call == 6 and int(os.environ["RANK"]) == BAD_RANK:
            os.kill(os.getpid(), signal.SIGKILL)

    return _Tiny(num_classes, die)


def wrong_in_16_bits(num_classes=1000, weights=None):
    """Trains in fp32, slowly; in 16 bits it is quick and far from the right answer."""

    def spoil(module, images, logits):
        if torch.is_autocast_enabled("cpu"):
            return 50 * logits
        time.sleep(0.1)
        return logits

    model = _Tiny(num_classes)
    model.register_forward_hook(spoil)
    return model


def overflows_once(num_classes=1000, weights=None):
    """Has gradients that are not finite in one step; its loss is finite always."""
    model = _Tiny(num_classes)
    calls = itertools.count(1)

    def spoil(gradient):
        return gradient * float("inf") if next(calls) == BAD_STEP else gradient

    model.head.weight.register_hook(spoil)
    return model


def loses_a_rank(num_classes=1000, weights=None):
    """Has a loss that is not a number from one step on, on one rank."""

    def spoil(module, images, logits):
        bad = module._calls >= BAD_STEP and int(os.environ["RANK"]) == BAD_RANK
        return logits * float("nan") if module.training and bad else logits

    model = _Tiny(num_classes, lambda call: None)
    model.register_forward_hook(spoil)
    return model


def hides_a_weight(num_classes=1000, weights=None):
    """Has a weight that becomes infinite in one step; no loss ever shows it."""
    model = _Tiny(num_classes)
    model.hidden = nn.Parameter(torch.zeros(1))
    calls = itertools.count(1)

    def spoil(gradient):
        return gradient + float("inf") if next(calls) == BAD_STEP else gradient

    model.hidden.register_hook(spoil)

    def hide(module, images, logits):
        return logits + 0 * module.hidden.clamp(-1, 1)

    model.register_forward_hook(hide)
    return model


def convnet(num_classes=10, weights=None):
    """Has a convolution, a batch normalisation and a linear layer, for 16 pixels.

    Its logits are so large that fp16 overflows at GradScaler's first scale.
    """
    layers = (nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten())
    model = nn.Sequential(*layers, nn.Linear(392, num_classes))
    model.register_forward_hook(lambda module, images, logits: 4 * logits)
    return model


def _have_met(run, call):
    """Tell whether every job of a run's round is that far, as a file of each says."""

    def round_of(one):
        return json.loads((one / "submission.json").read_text())["tags"] | {"arm": None}

    (run / f"met {call}").touch()
    mine = round_of(run)
    met = [one for one in run.parent.iterdir() if (one / f"met {call}").exists()]
    expected = len(mine.get("concurrent", "").split("; "))
    return sum(round_of(one) == mine for one in met) >= expected


def _raise():
    message = "the bad rank raises"
    raise ValueError(message)


def _once(act):
    def at_bad_step(call):
        if call == BAD_STEP and int(os.environ["RANK"]) == BAD_RANK:
            act()

    return at_bad_step
