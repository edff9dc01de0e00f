"""Parameters that the cell of the precision notebook leaves out."""

image_size: int = None  # side of the square image in pixels (None: 224, CPU 64)
loader: str = "torch"  # what reads image files: torch, dali or naive
warmup_steps: int = None  # leading steps not measured (None: 20, CPU 3)
seed: int = 0  # of weights, data order and augmentation; the same in every run
engine: str = "local"  # what starts the processes
wait_for_quiet: float = 0  # wait up to so many seconds until the machine is idle
unreadable_images: str = "stop"  # or skip: leave out what cannot be decoded
missing_labels: str = "refuse"  # blanks in a labels CSV: zero, one or ignore
uncertain_labels: str = "refuse"  # -1 or words in it: zero, one or ignore
