"""Parameters that the cell of the scaling notebook leaves out."""

loader: str = "torch"  # image loader: torch, dali, tfrecord or naive
image_size: int = None  # side of the square image in pixels (None: 224, CPU 32)
memory_format: str = "channels_last"  # or channels_first
warmup_steps: int = None  # warm-up steps (None: 10, CPU 2, fewer in a short run)
seed: int = 0  # seed of weights, data order and augmentation
slurm_account: str = None  # account to charge
timeout_min: int = None  # time limit of each job, in minutes
cpus_per_task: int = None  # CPUs of each process
slurm: dict = None  # further Slurm options, as JSON: {"slurm_qos": "high"}
strict_gpus: bool = False  # True: fail if there are fewer GPUs than requested
wait_for_idle: float = 0  # max seconds to wait for an idle machine
unreadable_images: str = "stop"  # or skip: omit images that cannot be decoded
missing_labels: str = "refuse"  # blanks in a labels CSV: zero, one or ignore
uncertain_labels: str = "refuse"  # -1 or words in a labels CSV: zero, one or ignore
