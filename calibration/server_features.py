"""Steps as a client sees them: the time between two tokens where all decode, and the first token of a prompt.

While the same B requests each get a token from every step, m tokens of one of them take m steps of B sequences. What
these read is known, for prompts and tokens are counted. A prompt that is alone takes a step of its own, and the way
over HTTP: that is what the shortest prompts take longer than a decode step of one sequence. Nothing else of a stream is
used: where some wait or prefill, a client cannot tell what a step did.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

import numpy as np

from rollsim.calibration.step_features import Features

# Steps that a row stands for, if that many go by alike: a client sees the end of one late by some of its time.
_WINDOW = 3
# Share of a step by which tokens of one step may come apart.
_APART = 0.5
# A prompt of so many tokens takes about as long as a decode step.
_SHORT = 8

# Tokens of a response of so many that came within this share of a run came at once; more such responses are many.
_LONGER = 12
_AT_ONCE = 0.1
_MANY = 0.3

Row = tuple[int, bool, int, float, float, float]


def stream_steps(
    recordings: Iterable[Mapping[str, Any]], budget: int, way_s: float = 0.0
) -> tuple[Features, np.ndarray]:
    """Rows that can be told of all repeats of some batches, and the mean seconds of their steps.

    Parameters
    ----------
    recordings
        As `ServerMeasurement` keeps them.
    budget
        ``max_num_batched_tokens``: a longer prompt takes several steps, and is left out.
    way_s
        What HTTP takes of the time to a first token [s].
    """
    rows = _without_bunches([row for recording in recordings for row in _rows(recording, budget, way_s)])
    columns = list(zip(*rows, strict=True)) if rows else [()] * 6
    kinds = (np.int64, bool, np.int64, float, float)
    steps = Features(*(np.array(column, dtype=kind) for column, kind in zip(columns, kinds, strict=False)))
    return steps, np.array(columns[5], dtype=float)


def http_way_s(recordings: Iterable[Mapping[str, Any]]) -> float:
    """What a request and its first token are under way [s]; 0 where no short prompt was alone, or no sequence."""
    steps, seconds = stream_steps(recordings, _SHORT)
    first_s, decode_s = seconds[steps.prefill], seconds[~steps.prefill & (steps.sequences == 1)]
    if not len(first_s) or not len(decode_s):
        return 0.0
    return max(0.0, float(np.median(first_s) - np.median(decode_s)))


def _without_bunches(rows: list[Row]) -> list[Row]:
    """Leave out what a busy client read late and all at once: less than half of the median of its batch size."""
    medians = {size: np.median([row[5] for row in rows if row[2] == size]) for size in {row[2] for row in rows}}
    return [row for row in rows if row[1] or row[5] >= medians[row[2]] / 2]


def came_at_once(repeat: Mapping[str, Any]) -> bool:
    """Whether tokens of many responses came all at once at their end: the server, or this client, stood still."""
    longer = [stream["at_s"] for stream in repeat["streams"].values() if len(stream["at_s"]) >= _LONGER]
    at_once = [at_s[-1] - at_s[0] < _AT_ONCE * at_s[-1] for at_s in longer]
    return bool(longer) and sum(at_once) > _MANY * len(longer)


def _rows(recording: Mapping[str, Any], budget: int, way_s: float) -> Iterator[Row]:
    waves = [
        list(wave)
        for _, wave in groupby(
            sorted(recording["requests"], key=lambda request: request["before_step"]),
            key=lambda request: request["before_step"],
        )
    ]
    for repeat in recording["repeats"]:
        if came_at_once(repeat):
            continue
        streams = repeat["streams"]
        for wave in waves:
            if len(wave) == 1 and (tokens := wave[0]["prompt_tokens"]) <= budget:
                stream = streams[wave[0]["id"]]
                took_s = stream["at_s"][0] - stream["submit_s"]
                yield tokens, True, 0, 0.0, tokens**2 / 2, max(took_s - way_s, took_s / 10)
            yield from _decoding(wave, streams)


def _decoding(wave: list[dict[str, Any]], streams: Mapping[str, Any]) -> Iterator[Row]:
    """Windows of the response that ends last in which no other begins, waits or ends."""
    at = [np.array(streams[request["id"]]["at_s"]) for request in wave]
    made = [np.array(streams[request["id"]]["tokens"]) for request in wave]
    prompts = np.array([request["prompt_tokens"] for request in wave])
    first_s, last_s = np.array([times[0] for times in at]), np.array([times[-1] for times in at])
    leader = int(np.argmax(last_s))
    at_s, tokens = at[leader], made[leader]
    if len(at_s) < 2:
        return
    apart_s = _APART * float(np.median(np.diff(at_s) / np.maximum(1, np.diff(tokens))))
    # The last token comes with the end of the response, sooner than others after the one before.
    for k in range(0, len(at_s) - 1 - _WINDOW, _WINDOW):
        end = k + _WINDOW
        begun, ended = first_s <= at_s[k] + apart_s, last_s <= at_s[k] + apart_s
        lasting = last_s >= at_s[end] - apart_s
        running = np.flatnonzero(begun & ~ended)
        steps = int(tokens[end] - tokens[k])
        if not steps or not (ended | (begun & lasting)).all():
            continue
        done = [made[i][np.searchsorted(at[i], at_s[k] + apart_s, side="right") - 1] for i in running]
        read = float(prompts[running].sum() + np.sum(done) + len(running) * (steps - 1) / 2)
        yield len(running), False, len(running), read, 0.0, float(at_s[end] - at_s[k]) / steps
