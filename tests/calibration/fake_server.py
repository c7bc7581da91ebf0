"""An OpenAI-compatible server on loopback for tests: one thread steps a batch, at a cost that is known."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from typing import Any

BASE_S, TOKEN_S, KV_S, PREFILL_S = 4e-3, 3e-4, 2e-6, 5e-5


@dataclass
class Asked:
    prompt: int
    output: int
    made: int = 0
    started: bool = False
    pieces: SimpleQueue = field(default_factory=SimpleQueue)


@dataclass
class FakeServer:
    """Continuous batching without limits of memory; `fault` makes it misbehave after `fault_after` completions."""

    seqs: int = 8
    scale: float = 1.0
    fault: str = ""
    fault_after: int = 0
    has_metrics: bool = True
    owner: str = "vllm"
    token_ids: bool = True
    completions: int = 0
    waiting: list[Asked] = field(default_factory=list)
    running: list[Asked] = field(default_factory=list)
    counts: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("prompt", "output", "steps", "ended"), 0.0))
    url: str = ""

    def __post_init__(self) -> None:
        self.lock = threading.Condition()
        self.stopped = False

    def steps(self) -> None:
        """Step while there is something to do."""
        while True:
            with self.lock:
                while not self.waiting and not self.running:
                    if self.stopped:
                        return
                    self.lock.wait(0.1)
                new = self.waiting[: self.seqs - len(self.running)]
                del self.waiting[: len(new)]
                decoding, self.running = list(self.running), self.running + new
            read = sum(one.prompt + one.made for one in decoding)
            prompts = sum(one.prompt for one in new)
            time.sleep(self.scale * (BASE_S + TOKEN_S * len(decoding) + KV_S * read + PREFILL_S * prompts))
            with self.lock:
                self.counts["prompt"] += prompts
                self.counts["output"] += len(self.running)
                self.counts["steps"] += 1
                for one in list(self.running):
                    one.made += 1
                    one.pieces.put(one.made)
                    if one.made == one.output:
                        self.running.remove(one)
                        self.counts["ended"] += 1

    def metrics(self) -> str:
        """As vLLM prints them."""
        kv = sum(one.prompt + one.made for one in self.running) / (1000 * 16)
        labels = '{engine="0"}'
        rows = {
            "num_requests_running": len(self.running), "num_requests_waiting": len(self.waiting),
            "kv_cache_usage_perc": kv, "prompt_tokens_total": self.counts["prompt"],
            "generation_tokens_total": self.counts["output"], "request_success_total": self.counts["ended"],
            "iteration_tokens_total_count": self.counts["steps"],
        }  # fmt: skip
        told = 'vllm:cache_config_info{block_size="16",num_gpu_blocks="1001",enable_prefix_caching="False"} 1.0'
        return "\n".join([*(f"vllm:{name}{labels} {value}" for name, value in rows.items()), told, ""])


class Handler(BaseHTTPRequestHandler):
    fake: FakeServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, code: int, body: str, kind: str = "application/json") -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def do_GET(self) -> None:
        if self.path == "/v1/models" and self.fake.fault != "other program":
            entry = {"id": "tiny", "owned_by": self.fake.owner, "root": "/models/tiny", "max_model_len": 256}
            self.answer(200, json.dumps({"data": [entry]}))
        elif self.path == "/version" and self.fake.owner == "vllm":
            self.answer(200, json.dumps({"version": "0.32.0"}))
        elif self.path == "/metrics" and self.fake.has_metrics:
            self.answer(200, self.fake.metrics(), "text/plain")
        else:
            self.answer(404, "not here")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.fake.completions += 1
        fault = self.fake.fault if self.fake.completions > self.fake.fault_after else ""
        if not self.fake.token_ids:
            self.answer(400, '{"error": "prompt must be text"}')
        elif fault == "500":
            self.answer(500, '{"error": "out of memory"}')
        elif fault == "stalls":
            time.sleep(3)
        else:
            self.stream(Asked(len(asked["prompt"]), asked["max_tokens"]), fault)

    def stream(self, one: Asked, fault: str) -> None:
        with self.fake.lock:
            self.fake.waiting.append(one)
            self.fake.lock.notify()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        made = 0
        while made < one.output:
            made = one.pieces.get()
            if fault == "breaks off" and made > 1:
                self.connection.close()
                return
            if fault == "stalls in the middle" and made > 1:
                time.sleep(3)
                return
            text = "not json" if fault == "no JSON" else json.dumps(self.piece(one, made))
            self.wfile.write(f"data: {text}\n\n".encode())
            if fault == "stops early" and made > 1:
                break
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    @staticmethod
    def piece(one: Asked, made: int) -> dict[str, Any]:
        reason = "length" if made == one.output else None
        usage = {"prompt_tokens": one.prompt, "completion_tokens": made}
        return {"choices": [{"text": "", "finish_reason": reason}], "usage": usage}


class _Quiet(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        pass


@contextmanager
def serving(**settings: Any) -> Iterator[FakeServer]:
    """Run one on a free port."""
    fake = FakeServer(**settings)
    http = _Quiet(("127.0.0.1", 0), type("Handler", (Handler,), {"fake": fake}))
    fake.url = f"http://127.0.0.1:{http.server_port}"
    threads = [threading.Thread(target=run, daemon=True) for run in (http.serve_forever, fake.steps)]
    for thread in threads:
        thread.start()
    try:
        yield fake
    finally:
        fake.stopped = True
        http.shutdown()
        http.server_close()
