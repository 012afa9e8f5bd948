"""The hardware layer: how much of the machine the training uses, and what the machine says about itself.

The rate that a device multiplies matrices at is measured at the start, so that a share of it says how well the training
does on this very machine and not on its data sheet.
"""

import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

RATE_SECONDS = 0.1
MATRIX_WIDTH = {"cpu": 512, "cuda": 8192}
ENERGY_COUNTERS = Path("/sys/class/powercap")
SCHEDULER = Path("/proc/thread-self/schedstat")


def matrix_rate(device: "torch.device", dtype: "torch.dtype") -> float:
    """Floating-point operations a second of the fastest of many products of square matrices, in RATE_SECONDS."""
    import torch

    width = MATRIX_WIDTH.get(device.type, MATRIX_WIDTH["cpu"])
    # Not of zeros or ones: a GPU multiplies these with less power, and so faster.
    generator = torch.Generator().manual_seed(0)
    left = torch.randn(width, width, generator=generator).to(device, dtype)
    result = torch.mm(left, left)
    fastest, ends = float("inf"), time.perf_counter() + RATE_SECONDS
    while time.perf_counter() < ends:
        began = time.perf_counter()
        torch.mm(left, left, out=result)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        fastest = min(fastest, time.perf_counter() - began)
    return 2 * width**3 / fastest


class Counters:
    """What has been counted since they were last read."""

    def __init__(self, device: "torch.device") -> None:
        self._device = device
        self._nvml = _nvml_handle(device)
        self._before = self._now()

    def read(self) -> dict[str, float]:
        """energy_joules of the GPU, or of the whole host's processors; cpu_delay_seconds, in which the training thread
        was ready to run and did not; major_faults of memory pages. What this machine does not tell is absent."""
        now, before = self._now(), self._before
        self._before = now
        return {name: round(value - before[name], 6) for name, value in now.items() if value >= before.get(name, value)}

    def state(self) -> dict[str, float]:
        """What a GPU says of itself just now: power in watts, temperature in degrees Celsius, clock in MHz."""
        if self._nvml is None:
            return {}
        import pynvml

        try:
            return {
                "gpu_watts": pynvml.nvmlDeviceGetPowerUsage(self._nvml) / 1000,
                "gpu_celsius": float(pynvml.nvmlDeviceGetTemperature(self._nvml, pynvml.NVML_TEMPERATURE_GPU)),
                "gpu_clock_mhz": float(pynvml.nvmlDeviceGetClockInfo(self._nvml, pynvml.NVML_CLOCK_SM)),
            }
        except pynvml.NVMLError:  # a virtual GPU does not tell everything
            return {}

    def _now(self) -> dict[str, float]:
        found: dict[str, float] = {"major_faults": resource.getrusage(resource.RUSAGE_SELF).ru_majflt}
        if (delay := cpu_delay_seconds()) is not None:
            found["cpu_delay_seconds"] = delay
        if (joules := self._joules()) is not None:
            found["energy_joules"] = joules
        return found

    def _joules(self) -> float | None:
        if self._nvml is not None:
            import pynvml

            try:
                return pynvml.nvmlDeviceGetTotalEnergyConsumption(self._nvml) / 1000
            except pynvml.NVMLError:
                return None
        return package_joules()


def package_joules(counters: Path = ENERGY_COUNTERS) -> float | None:
    """What the processors of this host have used since some time ago, by the kernel's RAPL counters; None where there
    are none or only root may read them."""
    try:
        packages = [path for path in sorted(counters.glob("intel-rapl:*")) if path.name.count(":") == 1]
        return sum(int((path / "energy_uj").read_text()) for path in packages) / 1e6 if packages else None
    except OSError:
        return None


def cpu_delay_seconds(path: Path = SCHEDULER) -> float | None:
    """How long this thread has been ready to run without running; None where the kernel does not count it."""
    try:
        _, delayed, _ = path.read_text().split()
    except (OSError, ValueError):
        return None
    return int(delayed) / 1e9


def _nvml_handle(device: "torch.device") -> Any:
    """NVML's handle of a GPU, by what tells it apart whatever devices this process may see; None if there is none."""
    if device.type != "cuda":
        return None
    try:
        import pynvml
        import torch

        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
    except Exception:  # no package, no library, no permission: measuring energy is not worth a training
        return None
