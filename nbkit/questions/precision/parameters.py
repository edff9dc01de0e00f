"""Parameters that the cell of the precision notebook leaves out."""

loss_tolerance: float = 0.05  # max loss deviation, relative to the first loss
image_size: int = None  # image side in pixels (None: 224, CPU 64)
loader: str = "torch"  # what reads image files: torch, dali or naive
warmup_steps: int = None  # warm-up steps, not measured (None: 10, CPU 3)
cudnn_benchmark: str = "off"  # cuDNN's search, in all arms: off, exhaustive or a limit
seed: int = 0  # seed of weights, data order and augmentation
engine: str = "local"  # launcher of the processes
wait_for_idle: float = 0  # seconds to wait at most for an idle machine
unreadable_images: str = "stop"  # or skip: leave out what cannot be decoded
missing_labels: str = "refuse"  # blanks in a labels CSV: zero, one or ignore
uncertain_labels: str = "refuse"  # -1 or words in it: zero, one or ignore
