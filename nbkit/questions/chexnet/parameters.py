"""Parameters that the cell of the chexnet notebook leaves out."""

learning_rate: float = 0.001  # AdamW's peak, for the global batch
label_weighting: str = "balanced"  # rare labels weigh more; or none
crop_area_min: float = 0.8  # smallest share of an image that a random crop keeps
auroc_margin: float = 0.02  # differences below it count as the same
loader: str = "torch"  # what reads image files: torch, dali or naive
unreadable_images: str = "stop"  # or skip: leave images out that cannot be decoded
seed: int = 0  # of the first pair: weights, data order and augmentation
tensorboard: bool = True  # write event files
engine: str = "local"  # what starts the processes
wait_for_quiet: float = 0  # wait up to so many seconds until the machine is idle
