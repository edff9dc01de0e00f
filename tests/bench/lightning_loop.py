"""The same loop through Lightning's Trainer with its notebook strategy (fork)."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import lightning
import torch
import torchvision
from torch import nn
from torch.utils.data import DataLoader, Dataset


class OneBatch(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """The same batch again and again: input costs nothing."""

    def __init__(self, settings: dict[str, Any], ranks: int) -> None:
        batch, size = settings["batch_size_per_gpu"], settings["image_size"]
        images = torch.randn(batch, 3, size, size)
        self._images = images.to(memory_format=torch.channels_last)
        self._labels = torch.randint(0, 1000, (batch,))
        self._length = settings["steps"] * ranks

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self._images, self._labels


class Loop(lightning.LightningModule):
    """Model, optimizer and the clock."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__()
        model = getattr(torchvision.models, settings["model"])(num_classes=1000)
        self.model = model.to(memory_format=torch.channels_last)
        self.criterion = nn.CrossEntropyLoss()
        self.settings = settings
        self.first_step_at = self.cpu_start = 0.0

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        """Return the loss of one batch."""
        if batch_idx == self.settings["warmup_steps"]:
            self.cpu_start = sum(os.times()[:2])
        images, labels = batch
        return self.criterion(self.model(images), labels)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Note the first step's moment."""
        if batch_idx == 0:
            self.first_step_at = time.time()

    def on_train_end(self) -> None:
        """Print on rank 0 what was counted."""
        cpu = torch.tensor([sum(os.times()[:2]) - self.cpu_start], dtype=torch.float64)
        total = float(self.all_gather(cpu).sum())
        if self.global_rank == 0:
            steps = self.settings["steps"] - self.settings["warmup_steps"]
            images = (
                steps * self.settings["batch_size_per_gpu"] * self.settings["ranks"]
            )
            line = {
                "cpu_ms_per_image": 1e3 * total / images,
                "first_step_at": self.first_step_at,
            }
            print(json.dumps(line), flush=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return SGD as the others use it."""
        return torch.optim.SGD(
            self.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, fused=True
        )


def main() -> None:
    """Train."""
    settings = json.loads(sys.argv[1])
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=settings["ranks"],
        strategy="ddp_notebook",
        max_steps=settings["steps"],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loader = DataLoader(OneBatch(settings, settings["ranks"]), batch_size=None)
    trainer.fit(Loop(settings), loader)


if __name__ == "__main__":
    main()
