"""The designed batches of a measurement: what reinforcement learning asks of an engine, from full batches to the tail.

Lengths are shares of a span of tokens, so that one design serves a tiny model for a minute and a large one for an hour.
Deterministic: the same limits, span and seed give the same batches.
"""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from rollsim.calibration.batch import Batch, Request, Role
from rollsim.simulator.limits import EngineLimits
from rollsim.simulator.replica import unfit

SPANS = (8_192, 4_096, 2_048, 1_024, 512, 256, 128)
REFERENCE = "reference"
# Runs of the reference batch in the first round: enough to tell a spread.
REFERENCE_RUNS = 5
# Long tails as reasoning models have them: the longest of a few hundred is about ten times the median.
_SIGMA = 1.0
_MAX_POOL_SHARE = 0.9


class Sweep:
    """Makes the batches for one engine.

    Parameters
    ----------
    limits
        Of the engine that is measured.
    span
        Longest prompt + output of a request [tokens]; cut to what the engine takes.
    seed
        Of the lengths.
    """

    def __init__(self, limits: EngineLimits, span: int, seed: int) -> None:
        self.limits = limits
        self.span = min(span, limits.max_model_len)
        self.seqs = limits.max_num_seqs
        self._seed = seed

    def batches(self) -> list[Batch]:
        """Return all batches, the reference first."""
        made = [self._reference(), *self._full(), *self._shapes(), *self._touched(), *self._short_of_memory()]
        made += self._held_out()
        return [batch for batch in made if batch.requests and self._fits(batch)]

    def _rng(self, name: str) -> random.Random:
        return random.Random(f"{self._seed} {name}")

    def _batch(self, name: str, purpose: str, requests: Iterator[Request], role: Role = "fit", **options: Any) -> Batch:
        return Batch(name, purpose, role, tuple(requests), options)

    def _fits(self, batch: Batch) -> bool:
        limits = self.limits
        if "num_gpu_blocks_override" in batch.options:
            length, blocks = batch.options["max_model_len"], batch.options["num_gpu_blocks_override"] - 1
            limits = replace(limits, max_model_len=length, num_blocks=blocks)
        return all(unfit(limits, request.prompt_tokens, request.output_tokens) is None for request in batch.requests)

    def _part(self, share: float, least: int = 1) -> int:
        return max(least, round(self.span * share))

    def _reference(self) -> Batch:
        """As many requests as run at once, all of one length: its repeats differ only by what the machine does."""
        prompt, output = self._part(1 / 16), self._part(1 / 16, 8)
        return self._batch(
            REFERENCE,
            "repeated through the whole measurement: the machine's noise",
            (Request(f"r{i}", prompt, output) for i in range(min(self.seqs, 16))),
            "reference",
        )

    def _full(self) -> Iterator[Batch]:
        """Batches of 1, 2, 4, ... requests of one length, after short and after long prompts."""
        pool = self.limits.num_blocks * self.limits.block_size * _MAX_POOL_SHARE
        output = self._part(1 / 32, 16)
        for size in _powers(self.seqs):
            for kind, share in (("short", 1 / 32), ("long", 1 / 2)):
                prompt = min(self._part(share), int(pool / size) - output - self.limits.block_size)
                if prompt >= 1:
                    yield self._batch(
                        f"full_{size:04}_{kind}",
                        f"batch of {size} that stays full, {kind} prompts",
                        (Request(f"r{i}", prompt, output) for i in range(size)),
                    )

    def _shapes(self) -> Iterator[Batch]:
        """What a rollout looks like from its start to its last response."""
        yield self._batch(
            "long_decode",
            "a few long responses: context grows under a small batch",
            (Request(f"r{i}", self._part(1 / 32), self._part(3 / 4)) for i in range(min(4, self.seqs))),
        )
        step = max(1, self._part(1 / 4) // self.seqs)
        yield self._batch(
            "tail_drain",
            "a full batch that loses its requests one by one",
            (Request(f"r{i}", self._part(1 / 16), step * (i + 1)) for i in range(self.seqs)),
        )
        yield self._batch(
            "all_at_once",
            "three times as many requests as fit, all at the start",
            self._uniform("all_at_once", 3 * self.seqs, (1 / 64, 1 / 8), (1 / 64, 1 / 8)),
        )
        sizes = _powers(min(self.limits.max_num_batched_tokens, self.limits.max_model_len - 1))
        yield self._batch(
            "prefill_alone",
            "one prompt per step, from short to the whole budget",
            (Request(f"r{i}", size, 1, before_step=i) for i, size in enumerate(sorted({*sizes, *_between(sizes)}))),
        )
        longest = min(self.limits.max_model_len - 2, max(self.span, 2 * self.limits.max_num_batched_tokens))
        yield self._batch(
            "prefill_chunks",
            "prompts beyond the budget of a step: chunks after what is computed",
            (Request(f"r{i}", max(1, longest // (i + 1)), 2, before_step=6 * i) for i in range(3)),
        )
        yield self._batch("mixed", "prompts that arrive while others decode", self._mixed())

    def _mixed(self) -> Iterator[Request]:
        rng = self._rng("mixed")
        decoding = max(1, self.seqs // 2)
        steps = self._part(1 / 8, 24)
        for i in range(decoding):
            yield Request(f"d{i}", self._part(1 / 32), steps)
        for i in range(steps // 3):
            prompt = rng.randint(self._part(1 / 32), self._part(1 / 2))
            yield Request(f"p{i}", prompt, rng.randint(1, 4), before_step=2 + 3 * i)

    def _touched(self) -> Iterator[Batch]:
        """Groups with and without prefix cache, prompts asked again, arrivals, aborts and resumes."""
        yield self._batch("groups", "groups of 8 that share a prompt", self._groups("groups"))
        yield self._batch("prefix_hits", "prompts asked for again when their answers are out", self._waves())
        yield self._batch(
            "arrivals",
            "requests that arrive over time",
            (
                replace(request, before_step=2 * i)
                for i, request in enumerate(self._uniform("arrivals", 2 * self.seqs, (1 / 64, 1 / 8), (1 / 64, 1 / 8)))
            ),
        )
        yield self._batch("aborts", "responses that are interrupted and resumed", self._aborts("aborts"))

    def _short_of_memory(self) -> Iterator[Batch]:
        """Little KV memory: shared prompts and a small budget, and with nothing cached."""
        tight = self._tight()
        off = tight | {"enable_prefix_caching": False}
        small = tight | {"max_num_batched_tokens": max(self.seqs, self.limits.max_num_batched_tokens // 4)}
        designed: tuple[tuple[str, str, Callable[[str], Iterator[Request]], Role, dict[str, Any]], ...] = (
            ("kv_full_groups", "KV full: groups of 8 preempt each other", self._crowd, "fit", small),
            ("kv_full_no_cache", "KV full, prefix caching off", self._crowd, "fit", off),
            ("groups_no_cache", "groups of 8, prefix caching off", self._groups, "fit", off),
            ("aborts_no_cache", "interrupted and resumed, prefix caching off", self._aborts, "fit", off),
            ("held_out_kv_full", "long tail with KV full, prefix caching off", self._crowd, "held_out", off),
        )
        for name, purpose, requests, role, options in designed:
            yield self._batch(name, purpose, requests(name), role, **options)

    def _held_out(self) -> Iterator[Batch]:
        for which in ("a", "b"):
            name = f"held_out_tail_{which}"
            yield self._batch(name, "long tail: lognormal lengths", self._lognormal(name, 3 * self.seqs, 1), "held_out")
        name = "held_out_groups"
        yield self._batch(name, "long tail in groups of 8", self._lognormal(name, 2 * self.seqs, 8), "held_out")

    def _uniform(
        self, name: str, count: int, prompts: tuple[float, float], outputs: tuple[float, float]
    ) -> Iterator[Request]:
        rng = self._rng(name)
        for i in range(count):
            prompt = rng.randint(self._part(prompts[0]), self._part(prompts[1]))
            yield Request(f"r{i}", prompt, rng.randint(self._part(outputs[0], 2), self._part(outputs[1], 2)))

    def _groups(self, name: str) -> Iterator[Request]:
        yield from self._grouped(
            name, 2 * self.seqs, 8, lambda rng: rng.randint(self._part(1 / 64, 2), self._part(1 / 8))
        )

    def _lognormal(self, name: str, count: int, group: int) -> Iterator[Request]:
        median = self._part(1 / 20, 4)
        most = self._part(1 / 2)
        yield from self._grouped(
            name, count, group, lambda rng: min(most, max(1, round(rng.lognormvariate(math.log(median), _SIGMA))))
        )

    def _grouped(
        self, name: str, count: int, group: int, output: Callable[[random.Random], int], prompt_share: float = 1 / 4
    ) -> Iterator[Request]:
        """Requests in groups, with prompts of up to a share of the span; groups of one share nothing."""
        rng = self._rng(name)
        for g in range(max(1, count // group)):
            prompt = rng.randint(self._part(1 / 64), self._part(prompt_share))
            for i in range(group):
                shared = f"g{g}" if group > 1 else None
                yield Request(f"g{g}r{i}", prompt, output(rng), shared)

    def _waves(self) -> Iterator[Request]:
        rng = self._rng("prefix_hits")
        prompts = [rng.randint(self._part(1 / 16), self._part(1 / 2)) for _ in range(min(8, self.seqs))]
        for wave in range(3):
            for g, prompt in enumerate(prompts):
                yield Request(f"w{wave}g{g}", prompt, rng.randint(2, 8), f"g{g}", before_step=12 * wave)

    def _aborts(self, name: str) -> Iterator[Request]:
        """Every fourth request is interrupted half-way, at the latest, and resumed some steps later."""
        rng = self._rng(name)
        for i in range(2 * self.seqs):
            prompt = rng.randint(self._part(1 / 64), self._part(1 / 4))
            output = rng.randint(self._part(1 / 32, 8), self._part(1 / 8, 16))
            if i % 4:
                yield Request(f"r{i}", prompt, output)
                continue
            stop = rng.randint(2, output // 2)
            yield Request(f"r{i}", prompt, output, abort_after_step=stop)
            yield Request(f"r{i}-resumed", prompt, output, before_step=stop + rng.randint(2, 8), resume_of=f"r{i}")

    def _tight(self) -> dict[str, int]:
        """A pool that holds one sequence of the longest kind and little more; vLLM counts one block more."""
        length = min(self.limits.max_model_len, 64 * self.seqs)
        return {"max_model_len": length, "num_gpu_blocks_override": -(-length // self.limits.block_size) + 2}

    def _crowd(self, name: str) -> Iterator[Request]:
        """Requests that need two to three times the tight pool when all that may run do; in groups if named so."""
        grouped = "groups" in name
        length = self._tight()["max_model_len"]
        each = max(4, round(2.5 * length / self.seqs))
        # Of a group only the outputs take memory of their own.
        share = 1 / 4 if grouped else 1 / 2
        rng = self._rng(name)
        for g in range(max(1, self.seqs // 4) if grouped else 2 * self.seqs):
            prompt = max(1, round(each * share * rng.uniform(0.5, 1.5)))
            for i in range(8 if grouped else 1):
                output = max(2, round(each * (1 - share) * min(4.0, rng.lognormvariate(-0.3, 0.7))))
                yield Request(f"g{g}r{i}", prompt, output, f"g{g}" if grouped else None)


def warm_up(limits: EngineLimits) -> Batch:
    """Every batch size once, and a prefill of the whole budget: a first use of a size costs extra.

    Run twice, its second run shows how fast the engine is.
    """
    seqs, budget = limits.max_num_seqs, limits.max_num_batched_tokens
    prompt = min(budget, limits.max_model_len - 1)
    drain = (Request(f"r{i}", 4, min(i + 1, limits.max_model_len - 4)) for i in range(seqs))
    prefill = (Request(f"p{i}", prompt, 1, before_step=2 * seqs) for i in range(-(-budget // prompt)))
    return Batch("warm_up", "every batch size once", "fit", (*drain, *prefill))


def _powers(last: int) -> list[int]:
    """1, 2, 4, ... and the last."""
    return sorted({2**k for k in range(last.bit_length()) if 2**k <= last} | {last})


def _between(sizes: list[int]) -> Iterator[int]:
    yield from ((low + high) // 2 for low, high in pairwise(sizes) if high - low > 16)
