"""Parameters that the cell of the concurrent jobs notebook leaves out."""

copies: list[str] = None  # for separate storage: one folder, or one per job
image_size: int = None  # side of the square image in pixels (None: 224, CPU 64)
loader: str = "torch"  # image loader: torch, dali, tfrecord or naive
warmup_steps: int = None  # warm-up steps (None: 20, CPU 4, fewer in a short run)
control: bool = True  # A/A control: the first job alone twice
seed: int = 0  # seed of the first job; job k uses seed + k - 1
wait_for_idle: float = 0  # max seconds to wait for an idle machine
unreadable_images: str = "stop"  # or skip: omit images that cannot be decoded
missing_labels: str = "refuse"  # blanks in a labels CSV: zero, one or ignore
uncertain_labels: str = "refuse"  # -1 or words in a labels CSV: zero, one or ignore
