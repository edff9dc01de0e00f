"""Parameters that the cell of the inference notebook leaves out."""

warmup_batches: int = None  # passes before the clock starts (None: 50, CPU 5)
training_steps: int = None  # of the weights trained here (None: 200, CPU 75)
calibration_images: int = 256  # from which INT8 takes its ranges
memory_format: str = "channels_last"  # or channels_first
seed: int = 0  # of weights and data order; the same in every run
wait_for_quiet: float = 0  # wait up to so many seconds until the machine is idle
unreadable_images: str = "stop"  # or skip: leave out what cannot be decoded
missing_labels: str = "refuse"  # blanks in a labels CSV: zero, one or ignore
uncertain_labels: str = "refuse"  # -1 or words in it: zero, one or ignore
