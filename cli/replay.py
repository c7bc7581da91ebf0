"""`rollsim replay`: a trace of requests through a calibrated engine, or engine recordings through the compiled one."""

from typing import TYPE_CHECKING, Annotated

import typer

from rollsim.cli.console import EXIT_DONE, EXIT_OUTSIDE_TOLERANCE, Json, Quiet, emit, note, progress, ready_kernel

if TYPE_CHECKING:
    from rollsim.simulator.engine_options import EngineOptions


def replay(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="TRACE", help="Requests (Parquet, CSV, JSON lines), or example:grpo, example:online."),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Calibrated engine: see `rollsim profiles list`; or a file."),
    ] = None,
    replicas: Annotated[int, typer.Option(metavar="N", help="Equal engines; groups are dealt to them in turn.")] = 1,
    max_num_seqs: Annotated[int | None, typer.Option(metavar="N", help="Most running requests of a replica.")] = None,
    max_num_batched_tokens: Annotated[int | None, typer.Option(metavar="N", help="Most tokens of one step.")] = None,
    max_model_len: Annotated[int | None, typer.Option(metavar="N", help="Most tokens of prompt and response.")] = None,
    block_size: Annotated[int | None, typer.Option(metavar="N", help="Tokens of a KV block.")] = None,
    num_gpu_blocks_override: Annotated[
        int | None, typer.Option(metavar="N", help="KV blocks, counted as vLLM does: one of them is never used.")
    ] = None,
    gpu_memory_utilization: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Share of GPU memory to use; sets the KV blocks.")
    ] = None,
    enable_prefix_caching: Annotated[
        bool | None, typer.Option("--enable-prefix-caching/--no-enable-prefix-caching", help="Default: on.")
    ] = None,
    enable_chunked_prefill: Annotated[
        bool | None, typer.Option("--enable-chunked-prefill/--no-enable-chunked-prefill", help="Default: on.")
    ] = None,
    scheduling_policy: Annotated[str | None, typer.Option(metavar="NAME", help="fcfs (default) or priority.")] = None,
    async_scheduling: Annotated[
        bool | None, typer.Option("--async-scheduling/--no-async-scheduling", help="Two batches in flight.")
    ] = None,
    long_prefill_token_threshold: Annotated[
        int | None, typer.Option(metavar="N", help="Most tokens of one request in a step; 0 is off.")
    ] = None,
    server: Annotated[bool, typer.Option("--server", help="Defaults of vLLM's server, not those of LLM().")] = False,
    out: Annotated[str | None, typer.Option(metavar="RUN", help="Folder to write the run's tables into.")] = None,
    recording: Annotated[
        bool, typer.Option("--recording", help="The arguments are engine recordings (.json, .tar.xz); no profile.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a trace of requests through a calibrated engine and say what happens.

    Prints makespan, throughput, latency, batch and KV over time, preemptions, the tail, where the GPU time went, and
    how wrong the answer may be. What is not set comes from the profile: vLLM's defaults for its GPU.

    \b
    rollsim replay example:grpo --profile qwen3-8b-h100-tp1-bf16 --replicas 4
    rollsim replay --recording FILE...

    The second form replays what a real engine did, step by step; exit code 3 if any step differs.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    from rollsim.simulator.engine_options import EngineOptions

    options = EngineOptions(
        replicas=replicas,
        server=server,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        max_model_len=max_model_len,
        block_size=block_size,
        num_gpu_blocks_override=num_gpu_blocks_override,
        gpu_memory_utilization=gpu_memory_utilization,
        enable_prefix_caching=enable_prefix_caching,
        enable_chunked_prefill=enable_chunked_prefill,
        scheduling_policy=scheduling_policy,
        async_scheduling=async_scheduling,
        long_prefill_token_threshold=long_prefill_token_threshold,
    )
    run = _replay_recordings if recording else _replay_trace
    raise typer.Exit(run(inputs or [], profile, options, out, as_json=as_json, quiet=quiet))


def _replay_trace(
    inputs: list[str], profile: str | None, options: "EngineOptions", out: str | None, *, as_json: bool, quiet: bool
) -> int:
    from rollsim.simulator import replay_report, replay_run

    prepared = replay_run.prepare(inputs, profile, options, out)
    unused = prepared.trace.unused_columns
    if unused:
        columns = f"{len(unused)} column{'s' if len(unused) > 1 else ''}"
        note(f"{prepared.trace.path}: {columns} not used: {', '.join(unused)}", quiet)
    ready_kernel("replay", quiet)
    with progress("replaying", replay_run.work(prepared), quiet) as done:
        outcome = replay_run.execute(prepared, done)
    if out is not None:
        replay_run.write(outcome, out)
        note(f"wrote {out}", quiet)
    emit(outcome.document, as_json, lambda: [replay_report.text(outcome.document, outcome.wall_s)])
    return EXIT_DONE


def _replay_recordings(
    inputs: list[str], profile: str | None, options: "EngineOptions", out: str | None, *, as_json: bool, quiet: bool
) -> int:
    from rollsim.simulator import judge_report

    recordings = judge_report.read_all(inputs, profile, options, out)
    ready_kernel("recordings", quiet)
    with progress("replaying", len(recordings), quiet) as done:
        document = judge_report.judge(recordings, done)
    emit(document, as_json, lambda: [judge_report.text(document)])
    return EXIT_OUTSIDE_TOLERANCE if document["different"] else EXIT_DONE
