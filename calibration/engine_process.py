"""A real engine in a process of its own, so that its crash ends no measurement."""

import json
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Self

from rollsim.calibration.batch import Batch
from rollsim.calibration.engine_faults import KINDS, EngineFailed

Backend = Literal["vllm", "torch"]
_WORKER = "rollsim.calibration.engine_worker"
_END_S = 10
_SAID = ("Error", "error:", "Killed", "Exception")


class EngineProcess:
    """Starts the process and opens the engine in it.

    Parameters
    ----------
    model
        Folder of a model, or its name on a hub.
    options
        Engine arguments under vLLM's names.
    seed
        Of sampling and prompts.
    log
        File for what the engine prints.
    backend
        vLLM, or the decoder in plain torch.

    Raises
    ------
    EngineUnfit
        vLLM is not there, or refuses model or options.
    EngineFailed
        Anything else.
    """

    command = (sys.executable, "-m", _WORKER)

    def __init__(self, model: str, options: Mapping[str, Any], seed: int, log: Path, backend: Backend = "vllm") -> None:
        self._seed = seed
        self._log = log
        with log.open("wb") as stderr:
            # A session of its own: Ctrl-C ends the measurement, which ends the engine.
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                encoding="utf-8",
                start_new_session=True,
            )
        try:
            self.facts: dict[str, Any] = self._ask(
                "open", backend=backend, model=model, options=dict(options), seed=seed
            )
        except BaseException:
            self.close()
            raise

    def record(self, batch: Batch) -> dict[str, Any]:
        """Run a batch and return its recording."""
        return self._ask("record", batch=batch.document(), seed=self._seed)

    def time(self, what: str, **arguments: Any) -> dict[str, Any]:
        """Time something else, by its name in `rollsim.calibration.extra_timings`."""
        return self._ask(what, **arguments)

    def _ask(self, do: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise EngineFailed(self._end())
        answer = json.loads(line)
        if "failed" in answer:
            raise KINDS[answer["failed"]](answer["message"])
        return answer["ok"]

    def _end(self) -> str:
        """Say how the process ended."""
        try:
            code = self._process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            return "the engine's process does not answer any more"
        if code == -signal.SIGKILL:
            return "the engine's process was killed, as a machine does that is out of memory"
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        said = self._last_words()
        return f"the engine's process crashed ({how})" + (f": {said}" if said else "")

    def _last_words(self) -> str:
        """The last line of the log that names an error, else its last line."""
        try:
            with self._log.open(encoding="utf-8", errors="replace") as log:
                lines = [line.strip() for line in deque(log, maxlen=50) if line.strip()]
        except OSError:
            return ""
        named = [line for line in lines if any(word in line for word in _SAID)]
        return (named or lines or [""])[-1]

    def close(self) -> None:
        """End the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        try:
            self._process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
