"""One experiment, field by field."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from nbkit.config.checks import DEFAULT_STEPS, ExperimentChecks
from nbkit.config.manual import ManualConfig
from nbkit.config.nested import AllReduceConfig, InferenceConfig, LoaderConfig
from nbkit.config.slurm import SlurmConfig

IMAGENET_TRAIN_IMAGES = 1_281_167
"""ILSVRC2012 training images (https://image-net.org/challenges/LSVRC/2012/)."""


GROUPS = {
    "name": "Task and model",
    "precision": "Precision",
    "batch_size_per_gpu": "Batch",
    "optimizer": "Optimizer",
    "epochs": "Duration",
    "data": "Data",
    "evaluation_period_epochs": "Evaluation and checkpoints",
    "seed": "Reproducibility",
    "gpus": "Devices",
    "stop_grace_seconds": "Timeouts and restarts",
    "allreduce": "All-reduce",
    "inference": "Inference",
    "slurm": "Slurm",
    "manual": "Manual launch",
}
"""Headings of the fields, each by the first field below it, as in the class."""


class ExperimentConfig(ExperimentChecks):
    """One experiment: model, numbers, batch, optimizer, data and devices."""

    model_config = ConfigDict(json_schema_extra={"groups": dict(GROUPS)})

    # Task and model
    name: str = ""
    """Free text that names the run in lists; the model's name if empty."""
    task: Literal["train", "load", "inference", "allreduce", "function", "script"] = (
        "train"
    )
    """``train`` trains the model; ``load`` reads the images as training would, without
    a model; ``inference`` times the forward pass by batch size, and scores the
    evaluation images; ``allreduce`` measures collective bandwidth; ``function`` and
    ``script`` run what was handed to `nbkit.launch`."""
    emulated_step_seconds: Annotated[float, Field(ge=0, le=3_600)] = 0.0
    """Time for which ``task="load"`` waits after each batch, instead of a GPU that
    would compute so long; 0 reads as fast as it can."""
    model: str = "resnet50"
    """Any torchvision classification model, or one added by a plug-in."""
    num_classes: Annotated[int, Field(ge=2)] | None = None
    """Outputs of the model; None takes the number of classes in the data
    (1,000 for synthetic data)."""
    weights: str = "random"
    """Where the weights come from: ``random`` makes new ones, ``pretrained`` takes
    torchvision's own for ImageNet (downloaded once; an output layer for other classes
    is made new); the id of a run takes its newest checkpoint, which must have been
    trained on the same classes; or the path of one."""
    weight_perturbation: Annotated[float, Field(ge=0, le=0.1)] = 0.0
    """Relative change of every weight, up or down at random, before the first step:
    2**-23 is the last bit of fp32. It shows how much rounding alone changes a
    training."""

    # Precision
    precision: Literal["fp32", "tf32", "fp16", "bf16", "int8"] = "fp32"
    """Format of matrix products and convolutions; weights stay fp32 in training.
    ``fp16`` scales the loss (GradScaler); ``int8`` is for ``task="inference"`` alone,
    which casts or quantizes the weights too."""
    memory_format: Literal["channels_last", "channels_first"] = "channels_last"
    """Layout of images: NHWC (channels_last) is what tensor cores want; NCHW
    (channels_first) undoes much of the gain of 16-bit precision."""
    compile: bool = False
    """Compile the model with torch.compile; ``int8`` on a GPU needs it. It keeps
    ``channels_first``, which it else would turn into ``channels_last``."""
    cuda_graphs: bool = False
    """Replay the model's kernels as CUDA graphs; needs a GPU."""

    # Batch
    batch_size_per_gpu: Annotated[int, Field(ge=1, le=65_536)] | Literal["max"] = 64
    """Images of one rank in one forward pass; ``max`` probes for the largest power of
    two (and the half steps between) that fits the GPU, in a separate process. With 64
    the newest GPUs wait for their host: take 256, or ``cuda_graphs``."""
    gradient_accumulation_steps: Annotated[int, Field(ge=1, le=4_096)] = 1
    """Forward and backward passes before each optimizer step."""

    # Optimizer
    optimizer: Literal["sgd", "lars", "adamw"] = "sgd"
    """SGD with momentum, LARS (https://arxiv.org/abs/1708.03888) or AdamW."""
    learning_rate: Annotated[float, Field(gt=0)] = 0.1
    """Peak learning rate, for the global batch as it is (no hidden scaling)."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Momentum of SGD and LARS."""
    lars_eta: Annotated[float, Field(gt=0)] = 0.001
    """Trust coefficient of LARS."""
    weight_decay: Annotated[float, Field(ge=0)] = 1e-4
    """Weight decay."""
    decay_norm_and_bias: bool = False
    """Also decay biases and normalisation weights."""
    schedule: Literal["constant", "cosine", "step", "polynomial"] = "cosine"
    """How the learning rate falls after its warm-up; ``cosine`` ends at 0, and
    ``polynomial`` at ``polynomial_end``."""
    learning_rate_warmup_epochs: Annotated[float, Field(ge=0)] = 0.0
    """Epochs over which the learning rate rises linearly to its peak."""
    step_epochs: tuple[Annotated[float, Field(gt=0)], ...] = (30.0, 60.0, 80.0)
    """Epochs at which ``schedule="step"`` multiplies the rate by ``step_factor``."""
    step_factor: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Factor of ``schedule="step"``."""
    polynomial_power: Annotated[float, Field(gt=0)] = 2.0
    """Power of ``schedule="polynomial"``."""
    polynomial_end: Annotated[float, Field(ge=0)] = 0.0
    """Learning rate at which ``schedule="polynomial"`` ends."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Label smoothing of the cross entropy."""
    label_weighting: Literal["none", "balanced"] = "none"
    """``balanced`` weighs, where an image can have several labels, the images with a
    label by how rare they are: by negatives / positives of the training images."""

    # Duration
    epochs: Annotated[int, Field(ge=1)] | None = None
    """Length in epochs; set either this or ``steps``."""
    steps: Annotated[int, Field(ge=1)] | None = None
    """Length in optimizer steps; 100 if neither this nor ``epochs`` is set."""
    warmup_steps: Annotated[int, Field(ge=0)] = 10
    """Leading steps that measurements drop (allocation, autotuning, compilation)."""
    stop_on_nonfinite: bool = False
    """End a training as failed once its loss, gradients or weights are not finite; its
    last finite checkpoint is kept. Without it the run continues, and its record says at
    which step it was."""

    # Data
    data: str = "synthetic"
    """``synthetic`` (made on the device), ``photos`` (real photographs, made once),
    ``made-labels`` (drawn patterns with several labels, made once), ``cifar10`` or
    ``imagenette`` (downloaded once), or a path: of an image folder (one subfolder a
    class, or ``train/`` and ``val/`` of such folders), of the CSV file of a multi-label
    set or of NIH ChestX-ray14, or of a folder of WebDataset, RecordIO or TFRecord
    files."""
    loader: str = "torch"
    """Loader of image files, by its registered name: ``torch``, ``dali``, ``tfrecord``
    (configurable steps over TFRecord files) or ``naive`` (one image after the
    other); the last two are for comparison. Synthetic data needs none."""
    loader_config: LoaderConfig = LoaderConfig()
    """Settings of the loader."""
    unreadable_images: Literal["stop", "skip"] = "stop"
    """What an image that cannot be decoded does: ``stop`` ends the run before it
    trains, ``skip`` omits it. Either way the record names it."""
    missing_labels: Literal["refuse", "zero", "one", "ignore"] = "refuse"
    """How a blank or nan in a label column of a CSV file is read: ``zero`` and ``one``
    as that value, ``ignore`` leaves the image out; ``refuse`` names its line."""
    uncertain_labels: Literal["refuse", "zero", "one", "ignore"] = "refuse"
    """How -1 or a word such as ``unsure`` in a label column of a CSV file is read, with
    the same choices: U-Zeros, U-Ones and U-Ignore of CheXpert."""
    image_size: Annotated[int, Field(ge=16, le=4_096)] = 224
    """Side of the square training and evaluation image, in pixels."""
    crop_area_min: Annotated[float, Field(gt=0, le=1)] = 0.08
    """Smallest share of an image's area that a random crop keeps."""
    crop_area_max: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Largest share of an image's area that a random crop keeps."""
    images_per_epoch: Annotated[int, Field(ge=1)] = IMAGENET_TRAIN_IMAGES
    """Images of one epoch of synthetic data; image files count themselves."""

    # Evaluation and checkpoints
    evaluation_period_epochs: Annotated[int, Field(ge=1)] | None = None
    """Evaluate after every so many epochs and at the end; None never does."""
    evaluation_offset_epochs: Annotated[int, Field(ge=0)] = 0
    """Epochs before the first evaluation period begins."""
    target_accuracy: Annotated[float, Field(gt=0, le=1)] | None = None
    """Stop once an evaluation reaches this top-1 accuracy (0 to 1)."""
    checkpoint_period_steps: Annotated[int, Field(ge=1)] | None = None
    """Save a checkpoint every so many steps; a graceful stop always saves one."""
    checkpoint_at_end: bool = False
    """Save a checkpoint after the last step."""
    checkpoints_kept: Annotated[int, Field(ge=1)] = 2
    """Complete checkpoints kept; older ones are removed."""
    tensorboard: bool = True
    """Write TensorBoard event files."""
    profile: bool = False
    """Keep a torch.profiler trace of three steps of rank 0 in the run's folder; the
    five steps after the warm-up are not measured then."""

    # Reproducibility
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Seed of weights, data order, augmentation and synthetic images."""
    deterministic: bool = False
    """Use deterministic algorithms only: same seed, bit-equal losses; slower. On GPUs
    NCCL then adds in rings and not in switches (``NCCL_ALGO=Ring``,
    ``NCCL_NVLS_ENABLE=0``)."""

    # Devices
    gpus: Annotated[int, Field(ge=1, le=1_024)] = 1
    """Processes per node, one per device (torchrun's nproc_per_node)."""
    nnodes: Annotated[int, Field(ge=1, le=65_536)] = 1
    """Nodes; world_size = nnodes x gpus."""
    device: Literal["auto", "cuda", "cpu", "replay"] = "auto"
    """``auto`` uses GPUs where the driver shows any, else CPUs. ``replay`` tries nbkit
    without GPUs: the run holds GPUs that are replayed, and computes on CPUs."""
    devices: tuple[int | str, ...] | None = None
    """Particular GPUs, by NVML index or UUID; None takes the first free ones."""
    oversubscribe: bool = False
    """Allow several ranks on a device; records and reports say so."""
    cpus: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    """Particular CPUs, by number, that the ranks and their loading processes stay on;
    None lets them run wherever their launcher may."""
    cpu_binding: Literal["none", "cores", "numa", "socket"] = "none"
    """The CPUs that a rank stays on: ``numa`` all of its GPU's NUMA node (torchrun's
    ``--numa-binding=node``), ``socket`` all of its GPU's socket (mpirun's ``--map-by
    socket``), ``cores`` the same number of whole cores, near its GPU. On CPUs,
    ranks are spread over the NUMA nodes or sockets in blocks. Where that is not
    possible, the rank continues unbound, and the run's record says why."""
    engine: str = "local"
    """What starts the ranks: ``local`` on this machine, ``slurm`` as a job of a
    cluster, ``manual`` by a torchrun line that you paste on each host; or a plug-in."""

    # Timeouts and restarts
    stop_grace_seconds: Annotated[float, Field(ge=0, le=86_400)] = 30.0
    """Time for a graceful stop (step boundary, checkpoint) before ranks are killed."""
    collective_timeout_seconds: Annotated[float, Field(ge=1, le=86_400)] = 1_800.0
    """Time after which torch gives up on one collective operation."""
    max_restarts: Annotated[int, Field(ge=0, le=1_000)] = 0
    """How often a run whose rank failed, was killed or hangs is started again, from its
    newest complete checkpoint (from the beginning without one)."""
    hang_timeout_seconds: Annotated[float, Field(ge=1, le=86_400)] | None = 600.0
    """A run in which no rank makes progress for so long is ended as hung; the first
    step may take this long too (compilation). None waits for ever, as do functions and
    scripts unless a number is given: each `nbkit.log` is progress."""

    # All-reduce
    allreduce: AllReduceConfig = AllReduceConfig()
    """Message sizes of ``task="allreduce"``."""

    # Inference
    inference: InferenceConfig = InferenceConfig()
    """Batch sizes of ``task="inference"``."""

    # Slurm
    slurm: SlurmConfig = SlurmConfig()
    """What ``engine="slurm"`` asks of Slurm."""

    # Manual launch
    manual: ManualConfig = ManualConfig()
    """Where the hosts of ``engine="manual"`` meet."""

    @property
    def world_size(self) -> int:
        """Ranks of the run: nnodes x gpus."""
        return self.nnodes * self.gpus

    @property
    def has_entry(self) -> bool:
        """Whether it runs a function or a script, kept in the run's folder."""
        return self.task in ("function", "script")

    @property
    def has_steps(self) -> bool:
        """Whether it takes batches of images, one step after the other."""
        return self.task in ("train", "load")

    @property
    def title(self) -> str:
        """What the run is called: its name, else its model or task."""
        of_a_model = self.task in ("train", "inference")
        return self.name or (self.model if of_a_model else self.task)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, validated again.

        A new ``epochs`` replaces ``steps``, and the other way round.

        Raises
        ------
        ConfigError
            If the changed configuration is not valid.
        """
        for new, old in (("epochs", "steps"), ("steps", "epochs")):
            if changes.get(new) is not None:
                changes.setdefault(old, None)
        return super().replace(**changes)

    def coming_from(self, folder: Path) -> Self:
        """Note the folder that it was read of where it can execute something."""
        # The default asks for nothing, and is compared with by many.
        if self.slurm != SlurmConfig():
            self.slurm.coming_from(folder)
        return self

    @model_validator(mode="after")
    def _default_length(self) -> Self:
        if self.steps is None and self.epochs is None:
            # Set without pydantic's setter: no user gave this value, and the record
            # says which fields were given.
            object.__setattr__(self, "steps", DEFAULT_STEPS)
        return self
