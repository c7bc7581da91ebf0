"""The Arrow schemas of a run's tables. A simulated run and a real one have the same.

Each field's metadata carries its ``unit`` and a one-line ``doc``; fields with a closed vocabulary list it under
``allowed``. Text of prompts or responses is never stored. A truncated length is right-censored at its
``max_output_tokens``.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from rollsim.traces.errors import closest

SCHEMA_VERSION = 3

FINISH_REASONS = ("length", "stop", "abort", "error")
STATUSES = ("finished", "aborted", "in_flight", "failed")
SEGMENT_KINDS = ("queue", "prefill", "decode", "reprefill", "tool", "generate", "reward")
LEDGER_CATEGORIES = (
    "prefill", "decode", "reprefill", "draft", "verify", "host", "tail_bubble", "sync", "switch", "tool_wait",
    "throttled", "starved", "forward_backward", "logprob", "reference", "critic", "reward", "optimizer",
    "communication", "checkpoint", "warm_up", "failed", "idle",
)  # fmt: skip
FATES = ("trained", "discarded", "undecided")

_LABEL = pa.dictionary(pa.int32(), pa.string())


def _int(name: str, unit: str, doc: str) -> pa.Field:
    return pa.field(name, pa.int64(), metadata={"unit": unit, "doc": doc})


def _count(name: str, unit: str, doc: str) -> pa.Field:
    """A whole number of one trajectory; half as wide, since there may be many millions of them."""
    return pa.field(name, pa.int32(), metadata={"unit": unit, "doc": doc})


def _float(name: str, unit: str, doc: str) -> pa.Field:
    return pa.field(name, pa.float64(), metadata={"unit": unit, "doc": doc})


def _flag(name: str, doc: str) -> pa.Field:
    return pa.field(name, pa.bool_(), metadata={"unit": "", "doc": doc})


def _label(name: str, doc: str, allowed: tuple[str, ...] = ()) -> pa.Field:
    metadata = {"unit": "", "doc": doc} | ({"allowed": " ".join(allowed)} if allowed else {})
    return pa.field(name, _LABEL, metadata=metadata)


def _schema(name: str, *fields: pa.Field) -> pa.Schema:
    return pa.schema(fields, metadata={"table": name, "schema_version": str(SCHEMA_VERSION)})


ROLLOUTS = _schema(
    "rollouts",
    _label("framework", "What produced the trajectory: rollsim, or a framework's name"),
    _label("run_id", "Run it belongs to"),
    _count("step_trained", "", "Train step that consumed it"),
    _int("group_id", "", "Number of its group (the responses to one prompt) within the run"),
    _int("prompt_id", "", "Number of its prompt in the data set"),
    _count("visit", "", "How many groups of that prompt were started before"),
    pa.field("sample_id", pa.string(), metadata={"unit": "", "doc": "Its own name within the run"}),
    _count("attempt", "", "How many earlier attempts there were: times it was interrupted and resumed"),
    _flag("is_extra", "Drawn in addition to the recorded responses of its group"),
    _count("prompt_tokens", "tokens", "Length of the prompt"),
    _count("output_tokens", "tokens", "Tokens generated, over all turns"),
    _count("env_tokens", "tokens", "Tokens added by tools and environment"),
    _count("num_turns", "", "Model calls in the trajectory"),
    _label("finish_reason", "Why generation ended", FINISH_REASONS),
    _flag("is_truncated", "Its length is right-censored at max_output_tokens"),
    _count("max_output_tokens", "tokens", "Limit that would have truncated it"),
    _float("reward", "", "Reward"),
    _count("version_start", "", "Oldest version of the weights in it: that of its first token"),
    _count("version_end", "", "Version of the weights that generated its last token"),
    _count("version_trained", "", "Version of the weights when its train step began"),
    _float("t_submit_s", "s", "It was handed to the rollout pool"),
    _float("t_start_s", "s", "It was first scheduled"),
    _float("t_first_token_s", "s", "Its first token was out"),
    _float("t_end_s", "s", "Its last token was out"),
    _float("t_final_s", "s", "Its reward was known"),
    _float("gen_s", "s", "Time in generation"),
    _float("tool_s", "s", "Time in tools"),
    _float("reward_s", "s", "Time in the reward"),
    _float("queue_s", "s", "Time waiting for a replica"),
    _count("cached_tokens", "tokens", "Prompt tokens found in the prefix cache at first admission"),
    _count("recomputed_tokens", "tokens", "Tokens prefilled again after preemption"),
    _count("num_preempted", "", "Times it was preempted"),
    _count("replica", "", "Replica that finished it"),
    _label("status", "Where it stands at the end of the run", STATUSES),
    _label("fate", "What became of it", FATES),
    _label("discard_reason", "Why it was discarded"),
)

SEGMENTS = _schema(
    "segments",
    pa.field("sample_id", pa.string(), metadata={"unit": "", "doc": "Trajectory, as in rollouts"}),
    _int("replica", "", "Replica it was on; none for a tool"),
    _int("version", "", "Version of the weights"),
    _label("kind", "What the trajectory did", SEGMENT_KINDS),
    _int("tokens", "tokens", "Tokens prefilled, generated or added"),
    _float("t0_s", "s", "Start"),
    _float("t1_s", "s", "End"),
)

STEPS = _schema(
    "steps",
    _int("step", "", "Number of the train step (one global train batch)"),
    _int("version", "", "Version of the weights it published"),
    _float("t0_s", "s", "Its training began"),
    _float("t1_s", "s", "Its training ended"),
    _float("published_s", "s", "Its weights were out, and the next step could begin"),
    _float("ended_s", "s", "All that belongs to it was over, its validation included; as published_s if not known"),
    _float("generate_s", "s", "Time the step waited for trajectories; for rewards too, if reward_s is not known"),
    _float("reward_s", "s", "Time it waited for rewards, after generation"),
    _float("switch_s", "s", "Roles of GPUs changed, to training and back"),
    _float("logprob_s", "s", "Passes without gradients: log-probabilities, reference, values"),
    _float("train_s", "s", "Forward, backward and optimizer; passes without gradients too, if logprob_s is not known"),
    _float("drain_s", "s", "Time it waited for running trajectories to end, or to stop, before the weights came"),
    _float("weight_sync_s", "s", "Publishing the weights; all that follows training, where that is not known apart"),
    _float("checkpoint_s", "s", "Writing a checkpoint"),
    _float("validation_s", "s", "Validation after it"),
    _int("trajectories", "", "Trajectories it consumed"),
    _int("prompt_tokens", "tokens", "Prompt tokens it consumed"),
    _int("output_tokens", "tokens", "Generated tokens it consumed"),
    _float("staleness_mean", "", "Version when it began less oldest version in a trajectory, over its trajectories"),
    _int("staleness_max", "", "Largest of these"),
    _float("response_tokens_mean", "tokens", "Length of the responses, with what tools added where the log counts it"),
    _float("response_tokens_min", "tokens", "Shortest of these"),
    _float("response_tokens_max", "tokens", "Longest of these"),
    _float("truncated_share", "", "Share of them that ended at a limit"),
    _float("aborted_share", "", "Share of them that were aborted"),
    _float("prompt_tokens_mean", "tokens", "Length of the prompts"),
    _float("prompt_tokens_max", "tokens", "Longest of them"),
    _float("reward_mean", "", "Mean reward"),
    _float("gpus", "GPUs", "GPUs that a log's own throughput counts"),
)

METRICS = _schema(
    "metrics",
    _int("step", "", "Train step"),
    _label("name", "What the framework calls it"),
    _float("value", "", "Its value, as it was logged"),
)

SPANS = _schema(
    "spans",
    _label("lane", "What was busy: a replica, a pool, the trainer"),
    _label("name", "With what"),
    _float("t0_s", "s", "Start"),
    _float("t1_s", "s", "End"),
)

GAUGES = _schema(
    "gauges",
    _float("t_s", "s", "Time of the sample"),
    _int("replica", "", "Replica"),
    _int("running", "", "Sequences in the running batch"),
    _int("waiting", "", "Requests waiting for admission"),
    _int("kv_used_blocks", "blocks", "KV blocks held by requests"),
    _int("kv_total_blocks", "blocks", "KV blocks there are"),
    _int("output_tokens", "tokens", "Tokens generated since the start"),
    _int("num_preempted", "", "Preemptions since the start"),
)

LEDGER = _schema(
    "ledger",
    _label("pool", "Rollout, train, ..."),
    _label("category", "What the GPUs did", LEDGER_CATEGORIES),
    _label("cause", "Why, where the category has several causes"),
    _label("fate", "What became of the work, once known", FATES),
    _label("discard_reason", "Why the work was discarded"),
    _float("gpu_s", "GPU s", "GPU-seconds; all rows add up to GPUs times span"),
)

ENGINE_STEPS = _schema(
    "engine_steps",
    _label("batch", "Batch of requests that was run"),
    _count("repeat", "", "How many runs of it there were before"),
    _count("step", "", "Step of the engine within the run"),
    _float("t1_s", "s", "It ended, since the first step of the run began"),
    _float("wall_s", "s", "Its duration"),
    _float("cpu_s", "s", "Time of all threads of the engine's process"),
    _float("host_s", "s", "What of its duration was spent outside the model: scheduling, bookkeeping, outputs"),
    _count("requests", "", "Requests scheduled"),
    _count("tokens", "tokens", "Tokens scheduled"),
    _count("n_ctx_requests", "", "Requests scheduled that had no output yet"),
    _count("prefill_tokens", "tokens", "Their tokens, less those found in the prefix cache"),
    _count("n_gen_requests", "", "Requests scheduled that had output; also readmitted ones"),
    _count("gen_tokens", "tokens", "Their tokens; also those computed again after a preemption"),
    _int("kv_tokens", "tokens", "Prompt and output of the requests that got a token"),
    _int("kv_batch", "tokens", "Computed tokens of the requests scheduled"),
    _int("kv_held", "tokens", "Computed tokens of the requests running after the step"),
    _count("blocks_peak", "blocks", "KV blocks in use when the step was scheduled"),
    _count("blocks_used", "blocks", "KV blocks in use after it"),
    _count("running", "", "Requests running after it"),
    _count("waiting", "", "Requests waiting after it"),
    _count("preempted_total", "", "Preemptions since the run began"),
    _count("draft_tokens", "tokens", "Tokens drafted that were checked"),
    _count("accepted_tokens", "tokens", "Drafted tokens that were accepted"),
)

TABLES: dict[str, pa.Schema] = {
    "rollouts": ROLLOUTS, "segments": SEGMENTS, "steps": STEPS, "metrics": METRICS, "spans": SPANS, "gauges": GAUGES,
    "ledger": LEDGER, "engine_steps": ENGINE_STEPS,
}  # fmt: skip


def build(name: str, columns: Mapping[str, Any]) -> pa.Table:
    """Make one of a run's tables from whole columns.

    Parameters
    ----------
    name
        A name in `TABLES`.
    columns
        Column name to its values: a numpy array (NaN and masked entries become null), an Arrow array, or one scalar
        for all rows. Columns that are left out are null.

    Raises
    ------
    ValueError
        For an unknown table or column, columns of different lengths, and labels outside a closed vocabulary.
    """
    if name not in TABLES:
        raise ValueError(f"no table {name!r}; allowed: {', '.join(TABLES)} (closest: {closest(name, TABLES)})")
    schema = TABLES[name]
    unknown = {column: closest(column, schema.names) for column in columns if column not in schema.names}
    if unknown:
        raise ValueError(f"table {name!r} has no columns {unknown} (given: closest)")
    lengths = {column: len(values) for column, values in columns.items() if isinstance(values, np.ndarray | pa.Array)}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"table {name!r} needs columns of one length, given {lengths}")
    rows = next(iter(lengths.values()))
    # Columns of which nothing is known share their memory.
    unknown_types = {field.type for field in schema if columns.get(field.name) is None}
    unknown_of = {kind: pa.nulls(rows, kind) for kind in unknown_types}
    arrays = [
        unknown_of[field.type] if (values := columns.get(field.name)) is None else _array(field, values, rows)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _array(field: pa.Field, values: Any, rows: int) -> pa.Array:
    if not isinstance(values, np.ndarray | pa.Array):
        values = pa.repeat(pa.scalar(values), rows)
    array = values if isinstance(values, pa.Array) else pa.array(values, from_pandas=True)
    if pa.types.is_dictionary(field.type) and not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    array = array.cast(field.type)
    allowed = (field.metadata or {}).get(b"allowed", b"").decode().split()
    outside = [label for label in array.dictionary.to_pylist() if label not in allowed] if allowed else []
    if outside:
        raise ValueError(f"column {field.name!r} holds {outside}; allowed: {', '.join(allowed)}")
    return array
