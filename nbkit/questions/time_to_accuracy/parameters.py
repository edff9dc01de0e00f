"""Parameters that the cell of the time to accuracy notebook leaves out."""

estimate_recipe: str = "netapp_lars"  # recipe to project to a complete training run
loader: str = "torch"  # image loader: torch, dali, tfrecord or naive
image_size: int = None  # side of the square image in pixels (None: the recipes')
evaluation_period_epochs: int = None  # epochs between evaluations (None: the recipes')
evaluation_offset_epochs: int = None  # epochs before these periods (None: the recipes')
seed: int = 0  # first seed
currency: str = "USD"  # currency of the price
estimate_for: list[str] = None  # GPUs with published rates (None: A100, H100, H200)
estimate_steps: int = None  # steps of the short runs; 0: none (None: 60, CPU 5)
engine: str = "local"  # launch engine: local, slurm or manual
wait_for_idle: float = 0  # max seconds to wait for an idle machine
unreadable_images: str = "stop"  # or skip: omit images that cannot be decoded
missing_labels: str = "refuse"  # blanks in a labels CSV: zero, one or ignore
uncertain_labels: str = "refuse"  # -1 or words in a labels CSV: zero, one or ignore
