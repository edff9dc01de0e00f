"""Parameters that the cell of the precision notebook leaves out."""

loss_tolerance: float = 0.05  # max loss deviation, relative to the first loss
image_size: int = None  # side of the square image in pixels (None: 224, CPU 64)
loader: str = "torch"  # image loader: torch, dali, tfrecord or naive
warmup_steps: int = None  # warm-up steps (None: 10, CPU 3, fewer in a short run)
cudnn_benchmark: str = "off"  # cuDNN search in all arms: off, exhaustive or a limit
seed: int = 0  # seed of weights, data order and augmentation
engine: str = "local"  # launch engine: local, slurm or manual
wait_for_idle: float = 0  # max seconds to wait for an idle machine
unreadable_images: str = "stop"  # or skip: omit images that cannot be decoded
missing_labels: str = "refuse"  # blanks in a labels CSV: zero, one or ignore
uncertain_labels: str = "refuse"  # -1 or words in a labels CSV: zero, one or ignore
