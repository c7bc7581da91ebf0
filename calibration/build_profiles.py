"""Building profiles from a table of measured step times: fit, residuals, memory, provenance, files."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rollsim.calibration.bias import Point, find_bias, read_points
from rollsim.calibration.decode_fit import fit_decode
from rollsim.calibration.prefill_fit import fit_prefill
from rollsim.calibration.provenance import cautions, claims
from rollsim.calibration.residuals import decode_errors, decode_regions, held_out, prefill_errors
from rollsim.calibration.rounding import rounded
from rollsim.calibration.step_table import Key, Measured, Rows, StepTable, read_step_table
from rollsim.simulator import facts, memory
from rollsim.simulator import profile_parts as parts
from rollsim.simulator.profile import SCHEMA_VERSION, Profile
from rollsim.traces.errors import BadInput, Fault

ENGINE = "vllm"
RULES_VERSION = "0.32.0"
UTILIZATION = 0.92
BLOCK_SIZE = 16
# A replica that holds less than four responses of 16k tokens is not worth a profile.
USEFUL_KV_TOKENS = 65_536


@dataclass(frozen=True)
class Request:
    """One profile to build: catalogue names and the key of its rows."""

    model: str
    gpu: str
    key: Key

    @property
    def name(self) -> str:
        """Name of the profile, e.g. qwen3-8b-h100-tp1-bf16."""
        return f"{self.model}-{self.gpu}-tp{self.key.tp}-{self.key.dtype}"


def requests(table: StepTable) -> list[Request]:
    """Every combination of the catalogue that the table has rows for and whose GPU holds a useful amount of KV."""
    found = [
        Request(model, gpu, key)
        for model, model_facts in facts.models().items()
        for gpu, gpu_facts in facts.gpus().items()
        for key in sorted(table.entries)
        if (key.system, key.backend, key.model) == (gpu_facts.system, ENGINE, model_facts.table)
        and key.dtype in memory.WEIGHT_BYTES
        and key.tp in memory.NCCL_BYTES
    ]
    return [request for request in found if _plan(request).kv_tokens >= USEFUL_KV_TOKENS]


def build_profiles(table_path: Path, bias_path: Path | None = None) -> list[Profile]:
    """Build every profile that a table supports.

    Parameters
    ----------
    table_path : Path
        Step times, CSV or CSV.gz; columns as in `step_table`.
    bias_path : Path, optional
        Predictions against measured end-to-end points; columns as in `bias`. Without it profiles state no bias.

    Raises
    ------
    BadInput
        A file cannot be used, or the table holds nothing the catalogue knows.
    """
    table = read_step_table(table_path)
    points = read_points(bias_path) if bias_path else []
    wanted = requests(table)
    if not wanted:
        known = ", ".join(
            f"{model.table} on {gpu.system}" for model in facts.models().values() for gpu in facts.gpus().values()
        )
        raise BadInput(
            Fault(str(table_path), "", None, known, None, f"no rows of engine {ENGINE} for a known model and GPU")
        )
    return [build_profile(table, request, points) for request in wanted]


def build_profile(table: StepTable, request: Request, points: list[Point]) -> Profile:
    """Fit one profile; rows whose KV would not fit the GPU are dropped first."""
    measured, plan = table.entries[request.key], _plan(request)
    model, gpu = facts.model(request.model), facts.gpu(request.gpu)
    decode, prefill = (rows.where(rows.kv_tokens <= plan.kv_tokens) for rows in (measured.decode, measured.prefill))
    decode_table, shift = fit_decode(decode)
    prefill_table = fit_prefill(prefill)
    join = np.interp(prefill_table.tokens[0], decode_table.batch, decode_table.dense_s)
    used = decode.batch.size + prefill.batch.size
    return Profile(
        schema_version=SCHEMA_VERSION,
        name=request.name,
        model=parts.Model(
            hf_name=model.hf_name,
            table_name=model.table,
            layers=model.layers,
            heads=model.heads,
            kv_heads=model.kv_heads,
            head_dim=model.head_dim,
            hidden=model.hidden,
            parameters=model.parameters,
            dtype="fp8" if request.key.dtype == "fp8" else "bf16",
            kv_dtype="bf16",
            note=model.note,
        ),
        gpu=parts.Gpu(name=gpu.name, memory_gib=gpu.memory_gib),
        parallelism=parts.Parallelism(tp=request.key.tp, ep=1, lockstep_ranks=1),
        engine=parts.Engine(name=ENGINE, timed_version=measured.version, rules_version=RULES_VERSION),
        scheduling="async",
        defaults=_defaults(model, gpu, plan),
        kv=_kv(plan),
        costs=parts.Costs(host_s=0.0, decode=decode_table, prefill=prefill_table),
        fit=parts.Fit(
            decode=decode_errors(decode_table, decode),
            decode_regions=decode_regions(decode_table, decode),
            prefill=prefill_errors(prefill_table, prefill),
            held_out=held_out(decode, prefill),
            monotone_shift=shift,
            join_gap=rounded(float(prefill_table.dense_s[0] / join - 1), 3),
            rows_used=used,
            rows_dropped=measured.decode.batch.size + measured.prefill.batch.size - used,
        ),
        fitted_range=_range(decode_table, decode, prefill),
        source=parts.Source(
            name=f"kernel times of aiconfigurator-core 0.12.0, composed into steps ({ENGINE} {measured.version})",
            license="Apache-2.0",
            file=table.file,
            sha256=table.sha256,
        ),
        bias=find_bias(points, model, gpu.system, ENGINE),
        claims=claims(decode_table, prefill_table, decode),
        cautions=cautions(measured, _other_dtype(table, request.key), shift),
    )


def write_profiles(profiles: list[Profile], out: Path) -> list[Path]:
    """Write each profile as NAME.json into a folder, made if need be."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        paths = [out / f"{profile.name}.json" for profile in profiles]
        for profile, path in zip(profiles, paths, strict=True):
            profile.write(path)
    except OSError as error:
        raise BadInput(Fault(str(out), message=f"cannot be written: {error.strerror}")) from None
    return paths


def _plan(request: Request) -> memory.MemoryPlan:
    gpu = facts.gpu(request.gpu)
    return memory.plan(
        facts.model(request.model),
        gpu,
        dtype=request.key.dtype,
        tp=request.key.tp,
        max_num_batched_tokens=gpu.defaults.max_num_batched_tokens,
        max_num_seqs=gpu.defaults.max_num_seqs,
        utilization=UTILIZATION,
        block_size=BLOCK_SIZE,
    )


def _defaults(model: facts.ModelFacts, gpu: facts.GpuFacts, plan: memory.MemoryPlan) -> parts.Defaults:
    return parts.Defaults(
        max_num_seqs=gpu.defaults.max_num_seqs,
        max_num_batched_tokens=gpu.defaults.max_num_batched_tokens,
        server_max_num_batched_tokens=gpu.defaults.server_max_num_batched_tokens,
        block_size=BLOCK_SIZE,
        # The engine refuses to start if the blocks cannot hold one request of full length.
        max_model_len=min(model.max_position, plan.kv_tokens),
        gpu_memory_utilization=UTILIZATION,
        graph_ceiling_tokens=gpu.graph_ceiling_tokens,
    )


def _kv(plan: memory.MemoryPlan) -> parts.Kv:
    gib = {
        name: round(value / memory.GIB, 2)
        for name, value in (
            ("budget", plan.budget_bytes),
            ("weights", plan.weight_bytes),
            ("activations", plan.activation_bytes),
            ("graphs and other", plan.other_bytes),
        )
    }
    how = (
        f"{UTILIZATION} x total memory = {gib['budget']} GiB, less weights {gib['weights']}, "
        f"activations {gib['activations']}, graphs and other {gib['graphs and other']} (estimates)"
    )
    return parts.Kv(num_blocks=plan.num_blocks, bytes_per_token=plan.bytes_per_token, obtained="computed", how=how)


def _range(table: parts.DecodeTable, decode: Rows, prefill: Rows) -> parts.FittedRange:
    def ends(values: np.ndarray) -> tuple[int, int]:
        return int(values.min()), int(values.max())

    return parts.FittedRange(
        decode_batch=(table.batch[0], table.batch[-1]),
        decode_context_tokens=ends(decode.context_tokens),
        decode_kv_tokens=ends(decode.kv_tokens),
        prefill_tokens=ends(prefill.kv_tokens),
        prefill_context_tokens=ends(prefill.context_tokens),
    )


def _other_dtype(table: StepTable, key: Key) -> Measured | None:
    return table.entries.get(key._replace(dtype="bf16")) if key.dtype != "bf16" else None
