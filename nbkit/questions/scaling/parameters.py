"""Parameters that the cell of the scaling notebook leaves out."""

image_size: int = None  # side of the square image in pixels (None: 224, CPU 32)
memory_format: str = "channels_last"  # or channels_first
warmup_steps: int = None  # leading steps left out (None: 10, CPU 2, a short run less)
seed: int = 0  # of weights, data order and augmentation
slurm_account: str = None  # who is charged
timeout_min: int = None  # time limit of each job, in minutes
cpus_per_task: int = None  # CPUs of each process
slurm: dict = None  # all else of Slurm, as JSON: {"slurm_qos": "high"}
strict_gpus: bool = False  # True: fail if there are fewer GPUs than requested
wait_for_quiet: float = 0  # wait up to so many seconds until the machine is idle
unreadable_images: str = "stop"  # or skip: leave out what cannot be decoded
missing_labels: str = "refuse"  # blanks in a labels CSV: zero, one or ignore
uncertain_labels: str = "refuse"  # -1 or words in it: zero, one or ignore
