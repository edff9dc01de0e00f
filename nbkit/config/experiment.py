"""One experiment, field by field."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field

from nbkit.config.checks import WINDOW_SECONDS, WINDOW_STEPS, ExperimentChecks
from nbkit.config.manual import ManualConfig
from nbkit.config.nested import AllReduceConfig, InferenceConfig, LoaderConfig
from nbkit.config.slurm import SlurmConfig
from nbkit.plural import plural

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

PROGRAM_TASKS = ("function", "script")
"""Those that run a user's code."""


class ExperimentConfig(ExperimentChecks):
    """Configuration of a run: model, precision, batch, optimizer, data and devices."""

    model_config = ConfigDict(json_schema_extra={"groups": dict(GROUPS)})

    # Task and model
    name: str = ""
    """Name of the run in lists; if empty, the model's name or the task."""
    task: Literal["train", "load", "inference", "allreduce", "function", "script"] = (
        "train"
    )
    """``train`` trains the model; ``load`` only loads the training data; ``inference``
    times the forward pass by batch size, and scores the evaluation images;
    ``allreduce`` measures all-reduce bandwidth; ``function`` and ``script`` run the
    function or script passed to `nbkit.launch`."""
    emulated_step_seconds: Annotated[float, Field(ge=0, le=3_600)] = 0.0
    """Emulated compute time: seconds that ``task="load"`` waits after each batch; 0
    loads at full speed."""
    model: str = "resnet50"
    """Any torchvision classification model, or one added by a plug-in."""
    num_classes: Annotated[int, Field(ge=2)] | None = None
    """Number of model outputs; None uses the number of classes or labels in the data
    (1,000 for ``data="synthetic"``)."""
    weights: str = "random"
    """Initial weights: ``random``, ``pretrained`` (torchvision's for ImageNet,
    downloaded once; with a new output layer for other classes), the id of a run (its
    newest checkpoint, trained on the same classes), or the path of a checkpoint."""
    weight_perturbation: Annotated[float, Field(ge=0, le=0.1)] = 0.0
    """Relative size of a random perturbation of every weight before the first step, to
    measure the effect of rounding (2**-23 is the last bit of fp32); 0 disables it."""

    # Precision
    precision: Literal["fp32", "tf32", "fp16", "bf16", "int8"] = "fp32"
    """Format of matrix products and convolutions: ``fp32``, ``tf32``, ``fp16``,
    ``bf16``, or ``int8`` for ``task="inference"`` only; weights stay fp32 in training.
    ``fp16`` scales the loss (GradScaler); inference casts or quantizes the weights
    too."""
    memory_format: Literal["channels_last", "channels_first"] = "channels_last"
    """Layout of images: NHWC (channels_last) for tensor cores; NCHW (channels_first)
    loses much of the speedup of 16-bit precision."""
    compile: bool = False
    """Compile the model with torch.compile; required for ``int8`` on a GPU.
    The layout ``channels_first`` is preserved."""
    cuda_graphs: bool = False
    """Replay the model's kernels as CUDA graphs; for training on a GPU, without
    ``compile`` and without gradient accumulation."""
    cudnn_benchmark: (
        # First step and images/s of a ResNet-50, batch 256, one start each on an H100:
        #          off            limit 1         limit 4         limit 10
        # fp16     0.95 s 4,947   4.1 s 4,949     4.7 s 4,941     13.5 s 4,963
        # tf32     0.85 s 2,536   22.1 s 2,536    4.1 s 2,520     18.1 s 2,526
        # fp32     0.89 s   885   1.3 s   885     8.8 s   917     68.8 s   956
        # A search gains fp32 8 % and costs a minute per start; it gains the others, of
        # tensor cores, 0.3 % at most.
        Annotated[int, Field(ge=1, le=1_000)] | Literal["off", "exhaustive"]
    ) = "off"
    """Search for the fastest cuDNN convolution algorithms in the first step on a GPU:
    ``off`` uses cuDNN's heuristics, a number tries that many algorithms per
    convolution, and ``exhaustive`` tries all (``torch.backends.cudnn.benchmark`` and
    ``benchmark_limit``; PyTorch's default limit is 10)."""

    # Batch
    batch_size_per_gpu: Annotated[int, Field(ge=1, le=65_536)] | Literal["max"] = 64
    """Images per rank and forward pass; ``max`` finds, in a separate process, the
    largest size that fits in GPU memory: a power of two, or 1.5 times a power of two
    (64, 96, 128, 192, ...). With 64, recent GPUs wait for kernel launches: use 256, or
    ``cuda_graphs``."""
    gradient_accumulation_steps: Annotated[int, Field(ge=1, le=4_096)] = 1
    """Forward and backward passes before each optimizer step."""

    # Optimizer
    optimizer: Literal["sgd", "lars", "adamw"] = "sgd"
    """``sgd`` (with momentum), ``lars`` (https://arxiv.org/abs/1708.03888) or
    ``adamw``."""
    learning_rate: Annotated[float, Field(gt=0)] = 0.1
    """Peak learning rate for the global batch (no implicit scaling)."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Momentum of SGD and LARS."""
    lars_eta: Annotated[float, Field(gt=0)] = 0.001
    """Trust coefficient of LARS."""
    weight_decay: Annotated[float, Field(ge=0)] = 1e-4
    """Weight decay."""
    decay_norm_and_bias: bool = False
    """Also decay biases and normalization weights."""
    schedule: Literal["constant", "cosine", "step", "polynomial"] = "cosine"
    """Learning rate schedule after the warm-up: ``constant``, ``step``, ``cosine``
    (ends at 0) or ``polynomial`` (ends at ``polynomial_end``)."""
    learning_rate_warmup_epochs: Annotated[float, Field(ge=0)] = 0.0
    """Epochs over which the learning rate rises linearly to its peak."""
    step_epochs: tuple[Annotated[float, Field(gt=0)], ...] = (30.0, 60.0, 80.0)
    """Epochs at which ``schedule="step"`` multiplies the learning rate by
    ``step_factor``."""
    step_factor: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Factor of ``schedule="step"``."""
    polynomial_power: Annotated[float, Field(gt=0)] = 2.0
    """Power of ``schedule="polynomial"``."""
    polynomial_end: Annotated[float, Field(ge=0)] = 0.0
    """Learning rate at which ``schedule="polynomial"`` ends."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Label smoothing of the cross entropy."""
    label_weighting: Literal["none", "balanced"] = "none"
    """``balanced`` weights the positives of each label by the ratio of negatives to
    positives in the training images (multi-label data)."""

    # Duration
    epochs: Annotated[int, Field(ge=1)] | None = None
    """Length in epochs; set at most one of ``epochs`` and ``steps``."""
    steps: Annotated[int, Field(ge=1)] | None = None
    """Length in optimizer steps. With neither ``steps`` nor ``epochs``, a run measures
    20 steps or 6 s, whichever is longer, but at most 30 s (and at least 3 steps);
    ``cosine`` and ``polynomial`` then stay at the peak learning rate."""
    warmup_steps: Annotated[int, Field(ge=0)] = 10
    """Steps at the start that are not measured (allocation, autotuning, compilation);
    half of ``steps`` if that is not larger than this number. A run without a given
    length continues its warm-up until the throughput is stable."""
    stop_on_nonfinite: bool = False
    """Fail on NaN or Inf in loss, gradients or weights; the last finite checkpoint is
    kept. If False, the run continues, and the record names the step."""

    # Data
    data: str = "synthetic"
    """``synthetic`` (generated on the device), ``photos`` (crops of scikit-image's
    photographs, created once), ``synthetic-multilabel`` (generated patterns with
    several labels, created once), ``cifar10`` or ``imagenette`` (downloaded once), or
    the path of an image folder (one subfolder per class, or ``train/`` and ``val/``
    with such subfolders), of a multi-label CSV file, of the table or folder of NIH
    ChestX-ray14, or of a folder of WebDataset, RecordIO or TFRecord files."""
    loader: str = "torch"
    """Loader of image files, by its registered name: ``torch``, ``dali``, ``tfrecord``
    (configurable steps over TFRecord files) or ``naive`` (one image at a time);
    the last two are for comparison. Synthetic data needs none."""
    loader_config: LoaderConfig = LoaderConfig()
    """Settings of the loader."""
    unreadable_images: Literal["stop", "skip"] = "stop"
    """Handling of images that cannot be decoded: ``stop`` ends the run before training,
    ``skip`` omits them. The record names them."""
    missing_labels: Literal["refuse", "zero", "one", "ignore"] = "refuse"
    """Handling of a blank or nan in a label column of a CSV file: ``zero`` and ``one``
    read it as 0 or 1, ``ignore`` omits the image, ``refuse`` rejects the file (the
    error names the line)."""
    uncertain_labels: Literal["refuse", "zero", "one", "ignore"] = "refuse"
    """Handling of -1 or a word such as ``unsure`` in a label column of a CSV file, as
    for ``missing_labels`` (``zero``, ``one`` and ``ignore`` are CheXpert's U-Zeros,
    U-Ones and U-Ignore)."""
    image_size: Annotated[int, Field(ge=16, le=4_096)] = 224
    """Width and height of training and evaluation images, in pixels."""
    crop_area_min: Annotated[float, Field(gt=0, le=1)] = 0.08
    """Smallest share of an image's area that a random crop keeps."""
    crop_area_max: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Largest share of an image's area that a random crop keeps."""
    images_per_epoch: Annotated[int, Field(ge=1)] = IMAGENET_TRAIN_IMAGES
    """Images per epoch of synthetic data."""

    # Evaluation and checkpoints
    evaluation_period_epochs: Annotated[int, Field(ge=1)] | None = None
    """Epochs between evaluations, with a last one at the end of the run; None disables
    evaluation."""
    evaluation_offset_epochs: Annotated[int, Field(ge=0)] = 0
    """Epoch after which the first evaluation period begins."""
    target_accuracy: Annotated[float, Field(gt=0, le=1)] | None = None
    """Stop once an evaluation reaches this top-1 accuracy (0 to 1)."""
    checkpoint_period_steps: Annotated[int, Field(ge=1)] | None = None
    """Steps between checkpoints; None disables periodic checkpoints. A graceful stop
    always saves one."""
    checkpoint_at_end: bool = False
    """Save a checkpoint after the last step."""
    checkpoints_kept: Annotated[int, Field(ge=1)] = 2
    """Number of complete checkpoints to keep; older ones are removed."""
    tensorboard: bool = True
    """Write TensorBoard event files."""
    profile: bool = False
    """Save a torch.profiler trace of three steps of rank 0 in the run's folder; the
    five steps after the warm-up are then excluded from the measurement."""

    # Reproducibility
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Seed of weights, data order, augmentation and synthetic images."""
    deterministic: bool = False
    """Use only deterministic algorithms, which are slower: equal seeds give bitwise
    equal losses. On GPUs, NCCL then reduces in rings, not in NVLink switches
    (``NCCL_ALGO=Ring``, ``NCCL_NVLS_ENABLE=0``)."""

    # Devices
    gpus: Annotated[int, Field(ge=1, le=1_024)] = 1
    """Processes per node, one per device (torchrun's nproc_per_node)."""
    nnodes: Annotated[int, Field(ge=1, le=65_536)] = 1
    """Number of nodes; world_size = nnodes x gpus."""
    device: Literal["auto", "cuda", "cpu", "replay"] = "auto"
    """``cuda``, ``cpu``, ``auto`` (GPUs if there are any, else CPUs), or ``replay``, a
    demo without GPUs: the run leases replayed GPUs, and computes on CPUs."""
    devices: tuple[int | str, ...] | None = None
    """GPUs by NVML index or UUID; None uses the first free ones."""
    oversubscribe: bool = False
    """Allow several ranks per device, and use devices of other runs instead of waiting
    for free devices. Records and reports state whether devices were shared."""
    cpus: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    """CPU numbers to which ranks and their loading processes are pinned; None allows
    all CPUs of the launcher."""
    cpu_binding: Literal["none", "cores", "numa", "socket"] = "none"
    """CPU binding of a rank: ``none``; ``numa``, to its GPU's NUMA node (torchrun's
    ``--numa-binding=node``); ``socket``, to its GPU's socket (torchrun's
    ``--numa-binding=socket``); or ``cores``, to whole cores near its GPU, equally many
    for every rank. On CPUs, ranks are distributed over the NUMA nodes or sockets in
    blocks. If binding is not possible, the rank continues unbound, and the run's record
    states the reason."""
    engine: str = "local"
    """Launch engine: ``local`` (this machine), ``slurm`` (a Slurm job), ``manual`` (a
    torchrun command that you run on each host), or a plug-in."""

    # Timeouts and restarts
    stop_grace_seconds: Annotated[float, Field(ge=0, le=86_400)] = 30.0
    """Seconds for a graceful stop (end of the step, checkpoint) before ranks are
    killed."""
    collective_timeout_seconds: Annotated[float, Field(ge=1, le=86_400)] = 1_800.0
    """Timeout of one collective operation in torch, in seconds."""
    max_restarts: Annotated[int, Field(ge=0, le=1_000)] = 0
    """Maximum number of restarts after a rank fails, is killed or hangs, from the
    newest complete checkpoint (without one, from the beginning). Failures that would
    recur are not restarted."""
    hang_timeout_seconds: Annotated[float, Field(ge=1, le=86_400)] | None = 600.0
    """Seconds without progress on any rank after which a run is ended as hung (the
    first step includes compilation); None, the default of functions, scripts and
    modules, sets no limit. Each `nbkit.log` call counts as progress."""

    # All-reduce
    allreduce: AllReduceConfig = AllReduceConfig()
    """Message sizes of ``task="allreduce"``."""

    # Inference
    inference: InferenceConfig = InferenceConfig()
    """Batch sizes of ``task="inference"``."""

    # Slurm
    slurm: SlurmConfig = SlurmConfig()
    """Slurm options of ``engine="slurm"``."""

    # Manual launch
    manual: ManualConfig = ManualConfig()
    """Rendezvous of ``engine="manual"``."""

    @property
    def world_size(self) -> int:
        """Ranks of the run: nnodes x gpus."""
        return self.nnodes * self.gpus

    @property
    def has_entry(self) -> bool:
        """Whether the run executes a function or script stored in its folder."""
        return self.task in PROGRAM_TASKS

    @property
    def has_steps(self) -> bool:
        """Whether the task iterates over batches of images (``train``, ``load``)."""
        return self.task in ("train", "load")

    @property
    def num_warmup_steps(self) -> int:
        """``warmup_steps``, or half of the ``steps`` of a run that is not longer."""
        if self.steps is None or self.warmup_steps < self.steps or not self.has_steps:
            return self.warmup_steps
        return self.steps // 2

    @property
    def has_time_window(self) -> bool:
        """Whether the run has no given length and measures for a time instead."""
        return self.has_steps and self.steps is None and self.epochs is None

    @property
    def length(self) -> str:
        """Length of the training in words."""
        if self.has_time_window:
            seconds, steps = WINDOW_SECONDS, WINDOW_STEPS
            return f"{seconds:g} s at a stable rate (at least {steps} steps)"
        if self.epochs is not None:
            return f"{plural(self.epochs, 'epoch')} ({self.warmup_steps} warm-up steps)"
        return f"{plural(self.steps or 0, 'step')} ({self.num_warmup_steps} warm-up)"

    @property
    def title(self) -> str:
        """Displayed name of the run: its name, else its model or task."""
        of_a_model = self.task in ("train", "inference")
        return self.name or (self.model if of_a_model else self.task)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, validated again.

        A new ``epochs`` replaces ``steps``, and vice versa.

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
        """Record the folder that it was read from, if it can execute code."""
        # The default asks for nothing, and is compared with by many.
        if self.slurm != SlurmConfig():
            self.slurm.coming_from(folder)
        return self
