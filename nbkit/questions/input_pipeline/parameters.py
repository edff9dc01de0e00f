"""Parameters that the cell of the input pipeline notebook leaves out."""

workers: int = None  # threads per rank (None: cores / ranks - 1, from 1 to 32)
image_size: int = 224  # side of the square image in pixels
loaders: list[str] = None  # loaders that the tuner tries (None: torch,tfrecord)
warmup_steps: int = None  # warm-up steps (None: 10, CPU 4, fewer in a short run)
control: bool = None  # A/A control: chexnet_old twice (None: true, CPU false)
seed: int = 0  # seed of image order and crops, equal in every run
engine: str = "local"  # launch engine: local, slurm or manual
wait_for_idle: float = 0  # max seconds to wait for an idle machine
