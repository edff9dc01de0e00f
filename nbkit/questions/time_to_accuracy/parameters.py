"""Parameters that the cell of the time to accuracy notebook leaves out."""

loader: str = "torch"  # what reads image files: torch, dali or naive
image_size: int = None  # side of the square image in pixels (None: the recipes')
evaluation_period_epochs: int = None  # evaluate every so many (None: the recipes')
evaluation_offset_epochs: int = None  # before the first period (None: the recipes')
seed: int = 0  # the first one
currency: str = "USD"  # of the price
estimate_for: list[str] = None  # GPUs with published rates (None: A100, H100, H200)
estimate_steps: int = None  # of short runs here; 0: none (None: 60, CPU 5)
engine: str = "local"  # what starts the processes
wait_for_quiet: float = 0  # wait up to so many seconds until the machine is idle
unreadable_images: str = "stop"  # or skip: leave out what cannot be decoded
missing_labels: str = "refuse"  # blanks in a labels CSV: zero, one or ignore
uncertain_labels: str = "refuse"  # -1 or words in it: zero, one or ignore
