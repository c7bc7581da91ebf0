"""The process that holds a real engine: takes commands as JSON lines, answers each with one.

Run as ``python -m rollsim.calibration.engine_worker``; see `rollsim.calibration.engine_process`.
"""

import gc
import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from rollsim.calibration import extra_timings
from rollsim.calibration.batch import from_document
from rollsim.calibration.engine_faults import KINDS, EngineFailed
from rollsim.calibration.recorder import record, recording_config

# vLLM's CPU build cannot be opened where llvmlite is loaded, which the simulator needs: only the one that is asked for.
BACKENDS = {
    "vllm": ("rollsim.calibration.vllm_driver", "VllmDriver"),
    "torch": ("rollsim.calibration.torch_driver", "TorchDriver"),
}


class Worker:
    """Does the commands, one engine in its life."""

    def __init__(self) -> None:
        self.driver: extra_timings.Engine | None = None
        self._facts: dict[str, Any] = {}

    def do(self, command: dict[str, Any]) -> Any:
        """Do one command."""
        name = command.pop("do")
        if name == "open":
            module, kind = BACKENDS[command.pop("backend")]
            self.driver = getattr(importlib.import_module(module), kind)(**command)
            assert self.driver is not None
            self._facts = self.driver.facts()
            return self._facts
        if self.driver is None:
            raise EngineFailed("no engine is open")
        if name == "record":
            batch = from_document(command["batch"])
            # What Python collects on its own would fall into steps at random.
            gc.collect()
            gc.disable()
            try:
                config = recording_config(self._facts, self.driver.temperature)
                return record(batch, self.driver, config, command["seed"])
            finally:
                gc.enable()
        return extra_timings.TIMINGS[name](self.driver, **command)


def answer(do: Callable[[dict[str, Any]], Any], line: str) -> dict[str, Any]:
    """Do the command of one line; whatever goes wrong is the answer."""
    try:
        return {"ok": do(json.loads(line))}
    except EngineFailed as error:
        kind = next(kind for kind, known in KINDS.items() if type(error) is known)
        return {"failed": kind, "message": str(error)}
    except Exception as error:  # noqa: BLE001 - the engine may raise anything, and its owner must hear of it
        return {"failed": "failed", "message": told(error)}


def told(error: BaseException) -> str:
    """What went wrong, in a line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else "no message"
    if isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__ or "can't allocate memory" in text:
        return f"out of memory: {text}"
    return f"{type(error).__name__}: {text}"


def main() -> None:
    """Answer commands until there are none; what the engine prints goes to stderr."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    worker = Worker()
    for line in sys.stdin:
        print(json.dumps(answer(worker.do, line)), file=answers, flush=True)
    # An engine's own clean-up may wait for what is no longer there.
    os._exit(0)


if __name__ == "__main__":
    main()
