"""Parameters that the cell of the input pipeline notebook leaves out."""

image_size: int = 224  # side of the square image in pixels
loaders: list[str] = None  # what the tuner may choose from (None: torch,tfrecord)
warmup_steps: int = None  # leading steps not measured (None: 10, CPU 4)
control: bool = None  # measure the old pipeline twice: noise (None: true, CPU false)
seed: int = 0  # of the order of images and their crops; the same in every run
engine: str = "local"  # what starts the processes
wait_for_quiet: float = 0  # wait up to so many seconds until the machine is idle
