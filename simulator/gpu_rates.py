"""Peak rates of the catalogue's GPUs, from NVIDIA's data sheets: dense bf16 without sparsity, and memory."""

from dataclasses import dataclass

from rollsim.traces.errors import BadInput, Fault, closest


@dataclass(frozen=True)
class GpuRates:
    """Peak arithmetic [FLOP/s] and memory [bytes/s] rates of one GPU."""

    flops: float
    memory_bytes: float


RATES = {
    "A100-SXM-80GB": GpuRates(312e12, 2.039e12),
    "H100-SXM-80GB": GpuRates(989e12, 3.35e12),
    "H200-SXM-141GB": GpuRates(989e12, 4.8e12),
    "B200-SXM-180GB": GpuRates(2250e12, 8.0e12),
}


def rates(gpu: str) -> GpuRates:
    """Return the rates of a GPU by the name in its profile; `BadInput` for one that is not known."""
    if gpu not in RATES:
        raise BadInput(Fault("GPU", "", gpu, ", ".join(RATES), closest(gpu, RATES), "peak rates are not known"))
    return RATES[gpu]
