"""Parameters that the cell of the storage notebook leaves out."""

loader: str = "torch"  # image loader: torch, dali, tfrecord or naive
control: bool = False  # A/A control: run the first arm twice
read_bytes: int = None  # bytes per read test (None: 1 GiB, CPU 128 MiB)
read_repeats: int = None  # repeats of each read test (None: 5, CPU 3)
read_engine: str = "auto"  # python, fio, or auto: fio if it can read 1 GiB+ of 1 file
batch_size_per_gpu: int = None  # images per rank and step (None: 256, CPU 16)
image_size: int = None  # side of the square image in pixels (None: 224)
warmup_steps: int = None  # leading steps not measured (None: 5, CPU 2)
model: str = None  # of the stage train (None: resnet50, CPU resnet18)
precision: str = None  # of the stage train (None: fp16, CPU fp32)
seed: int = 0  # seed of data order and augmentation
engine: str = "local"  # launch engine: must be local
wait_for_idle: float = 0  # max seconds to wait for an idle machine
unreadable_images: str = "stop"  # or skip: omit images that cannot be decoded
missing_labels: str = "refuse"  # blanks in a labels CSV: zero, one or ignore
uncertain_labels: str = "refuse"  # -1 or words in a labels CSV: zero, one or ignore
