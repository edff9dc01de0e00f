"""Parameters that the cell of the chexnet notebook leaves out."""

image_size: int = None  # side of the square image in pixels (None: 224, CPU 64)
learning_rate: float = 0.001  # peak learning rate for the global batch
label_weighting: str = "balanced"  # rare labels weigh more; or none
crop_area_min: float = 0.8  # smallest area fraction of a random crop
auroc_margin: float = 0.02  # largest AUROC difference that counts as equal
loader: str = "torch"  # image loader: torch, dali, naive, or tfrecord with gpus=1
unreadable_images: str = "stop"  # or skip: omit images that cannot be decoded
seed: int = 0  # first seed: weights, data order, augmentation
tensorboard: bool = True  # write TensorBoard event files
engine: str = "local"  # launch engine: local, slurm or manual
wait_for_idle: float = 0  # max seconds to wait for an idle machine
