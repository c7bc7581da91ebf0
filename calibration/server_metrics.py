"""What vLLM tells of itself at ``/metrics``: gauges, counters, and the settings of its cache."""

from collections.abc import Mapping
from dataclasses import dataclass

from rollsim.calibration.server_client import needed

_SAMPLES = {
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
    "kv_share": "vllm:kv_cache_usage_perc",
    "prompt_tokens": "vllm:prompt_tokens_total",
    "output_tokens": "vllm:generation_tokens_total",
    "preemptions": "vllm:num_preemptions_total",
    "steps": "vllm:iteration_tokens_total_count",
    "finished": "vllm:request_success_total",
    "cached_tokens": "vllm:prefix_cache_hits_total",
}
_CACHE = "vllm:cache_config_info"


@dataclass(frozen=True)
class ServerMetrics:
    """A scrape; what is not told is None.

    Attributes
    ----------
    running, waiting : float
        Requests in the batch, and before it.
    kv_share : float
        Share of the KV blocks that is in use.
    prompt_tokens, output_tokens, preemptions : float
        Since the server began.
    steps : float
        Engine steps that made tokens, since then.
    finished : float
        Requests that ended well, since then.
    cached_tokens : float
        Prompt tokens that the prefix cache had, since then.
    cache
        Settings of the cache, as text.
    """

    running: float | None = None
    waiting: float | None = None
    kv_share: float | None = None
    prompt_tokens: float | None = None
    output_tokens: float | None = None
    preemptions: float | None = None
    steps: float | None = None
    finished: float | None = None
    cached_tokens: float | None = None
    cache: Mapping[str, str] | None = None

    def whole(self, name: str) -> int | None:
        """Return a setting of the cache that is a whole number."""
        text = (self.cache or {}).get(name, "")
        return int(text) if text.isdigit() else None


def read_metrics(text: str) -> ServerMetrics | None:
    """Read the text of a scrape, None if nothing of it is vLLM's; values of several engines are added up.

    Raises
    ------
    ValueError
        It is no such text.
    """
    samples: dict[str, float] = {}
    cache: dict[str, str] | None = None
    for family in needed("prometheus_client.parser").text_string_to_metric_families(text):
        for sample in family.samples:
            samples[sample.name] = samples.get(sample.name, 0.0) + sample.value
            if sample.name == _CACHE:
                cache = dict(sample.labels)
    found = {name: samples[own] for name, own in _SAMPLES.items() if own in samples}
    return ServerMetrics(**found, cache=cache) if found else None
