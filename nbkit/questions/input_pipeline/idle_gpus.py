"""Share of samples in which a run's GPUs were idle."""

from __future__ import annotations

from nbkit import statistics
from nbkit.launch.run import Run
from nbkit.review.energy import system_samples


def idle_sample_share(run: Run) -> float | None:
    """Return the share of samples in which a GPU's utilization was 0 %.

    Over all GPUs of the run and all samples of its measured steps; one sample of one
    GPU counts once. A GPU that waits for its input is at 0 % now and then long before
    its mean says so.

    References
    ----------
    nvmlDeviceGetUtilizationRates,
    https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
    """
    if run.config.task == "load":
        return None
    record = run.record
    strangers = (record.get("system") or {}).get("other_gpu_processes")
    if strangers or record.get("launch", {}).get("replayed"):
        return None
    steps = statistics.measured_steps(run.metrics(None))
    if len(steps) < 2 or steps[0]["attempt"] != steps[-1]["attempt"]:
        return None
    begin, end = steps[0]["t"], steps[-1]["t"]
    seen = [
        gpu.get("gpu_utilization_percent")
        for path in run.paths.system_files()
        for sample in system_samples(path)
        if begin <= sample["t"] <= end
        for gpu in sample["gpus"]
    ]
    known = [percent for percent in seen if percent is not None]
    return known.count(0) / len(known) if known else None
