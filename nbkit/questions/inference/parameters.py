"""Parameters that the cell of the inference notebook leaves out."""

image_size: int = None  # side of the square image in pixels (None: 224, CPU 64)
warmup_batches: int = None  # untimed warm-up passes (None: 50, CPU 5)
training_steps: int = None  # to train the weights (None: 200, CPU 75)
calibration_images: int = 256  # to calibrate INT8 ranges
memory_format: str = "channels_last"  # or channels_first
seed: int = 0  # seed of weights and data order
wait_for_idle: float = 0  # max seconds to wait for an idle machine
unreadable_images: str = "stop"  # or skip: omit images that cannot be decoded
missing_labels: str = "refuse"  # blanks in a labels CSV: zero, one or ignore
uncertain_labels: str = "refuse"  # -1 or words in a labels CSV: zero, one or ignore
