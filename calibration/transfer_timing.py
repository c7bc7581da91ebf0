"""Times copies and collectives by size: between host and device, on one device, and between processes.

Collectives run over NCCL where there are two GPUs or more; else over gloo between two processes on this host's CPU,
which proves the code and says nothing of a cluster.
"""

import importlib
import multiprocessing
import os
import queue
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from rollsim.calibration.engine_facts import cpu_facts, gpu_facts
from rollsim.calibration.engine_faults import EngineFailed
from rollsim.calibration.torch_decoder import import_torch

# Bytes; every other one is held out of the fit.
GPU_SIZES = tuple(1 << power for power in range(16, 31, 2))
CPU_SIZES = tuple(1 << power for power in range(14, 27, 2))
COLLECTIVES = ("broadcast", "all_gather", "all_reduce")
_RUNS = 7
_WAIT_S = 120.0


def time_transfers(progress: Callable[[float], None] = lambda _: None) -> dict[str, Any]:
    """Return all transfers with the seconds of each size, as JSON.

    Raises
    ------
    EngineUnfit
        torch is not there.
    """
    torch = import_torch()
    count = int(torch.cuda.device_count())
    sizes = GPU_SIZES if count else CPU_SIZES
    timings: dict[str, Any] = {}
    copies = list(_copies(torch, bool(count)))
    for done, (name, make) in enumerate(copies):
        timings[name] = {"sizes": list(sizes), "seconds": [_median_s(torch, make(size)) for size in sizes]}
        progress(0.5 * (done + 1) / len(copies))
    backend, ranks = ("nccl", count) if count > 1 else ("gloo", 2)
    try:
        for name, seconds in _collectives(backend, ranks, sizes).items():
            timings[name] = {"sizes": list(sizes), "seconds": seconds, "backend": backend, "ranks": ranks}
    except EngineFailed as error:
        timings |= {name: {"not_timed": str(error), "backend": backend, "ranks": ranks} for name in COLLECTIVES}
    progress(1.0)
    return {
        "device": gpu_facts() if count else cpu_facts(),
        "devices": count,
        "torch": str(torch.__version__),
        "timings": timings,
    }


def _copies(torch: Any, on_gpu: bool) -> Iterator[tuple[str, Callable[[int], Callable[[], object]]]]:
    def between(source: dict[str, Any], target: dict[str, Any]) -> Callable[[int], Callable[[], object]]:
        def make(size: int) -> Callable[[], object]:
            one, other = (torch.ones(size, dtype=torch.uint8, **where) for where in (source, target))
            return lambda: other.copy_(one, non_blocking=True)

        return make

    host, pinned, device = {}, {"pin_memory": True}, {"device": "cuda"}
    yield "host_to_host", between(host, host)
    if on_gpu:
        yield "host_to_device", between(host, device)
        yield "device_to_host", between(device, host)
        yield "pinned_to_device", between(pinned, device)
        yield "device_to_pinned", between(device, pinned)
        yield "device_to_device", between(device, device)


def _median_s(torch: Any, do: Callable[[], object]) -> float:
    def once() -> float:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        began = time.perf_counter()
        do()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter() - began

    once()
    return statistics.median(once() for _ in range(_RUNS))


def _collectives(backend: str, ranks: int, sizes: tuple[int, ...]) -> dict[str, list[float]]:
    """Seconds of each collective by size, as the first rank sees them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    workers = [
        context.Process(target=_rank, args=(rank, ranks, backend, port, sizes, answers), daemon=True)
        for rank in range(ranks)
    ]
    for worker in workers:
        worker.start()
    try:
        found = answers.get(timeout=_WAIT_S)
    except queue.Empty:
        raise EngineFailed(f"{backend} between {ranks} processes did not answer in {_WAIT_S:g} s") from None
    finally:
        for worker in workers:
            worker.join(timeout=5)
            if worker.is_alive():
                worker.kill()
    if isinstance(found, str):
        raise EngineFailed(found)
    return found


def _rank(rank: int, ranks: int, backend: str, port: int, sizes: tuple[int, ...], answers: Any) -> None:
    """One process of a group; the first answers, or whoever fails says why."""
    try:
        torch = import_torch()
        distributed = importlib.import_module("torch.distributed")
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        device = "cpu"
        if backend == "nccl":
            torch.cuda.set_device(rank)
            device = f"cuda:{rank}"
        distributed.init_process_group(backend, rank=rank, world_size=ranks)
        found: dict[str, list[float]] = {}
        for name in COLLECTIVES:
            found[name] = []
            for size in sizes:
                data = torch.ones(size // 2, dtype=torch.bfloat16, device=device)
                parts = [torch.empty_like(data) for _ in range(ranks)]
                call = {
                    "broadcast": lambda data=data: distributed.broadcast(data, 0),
                    "all_gather": lambda data=data, parts=parts: distributed.all_gather(parts, data),
                    "all_reduce": lambda data=data: distributed.all_reduce(data),
                }[name]
                distributed.barrier()
                found[name].append(_median_s(torch, call))
        if rank == 0:
            answers.put(found)
        distributed.barrier()
        with suppress(Exception):
            distributed.destroy_process_group()
    except Exception as error:  # noqa: BLE001 - whatever it is, the first process must hear of it
        answers.put(f"{backend} between {ranks} processes failed: {error}")
