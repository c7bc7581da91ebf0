"""A running OpenAI-compatible server, asked over HTTP. Needs the extra ``server``: httpx and prometheus-client."""

import importlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

from rollsim.calibration.engine_faults import EngineFailed, EngineUnfit

_SAID = 200


@dataclass(frozen=True)
class Tokens:
    """A piece of a response: how many tokens it has in all with it, and why it ended, if it did."""

    total: int
    finish_reason: str | None


def needed(package: str) -> Any:
    """Import one of the packages of the extra.

    Raises
    ------
    EngineUnfit
        It is not installed.
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise EngineUnfit(
            f"{error.name} is not installed; asking a server needs the extra server of rollsim"
        ) from error


class ServerClient:
    """One server; use it as an asynchronous context.

    Parameters
    ----------
    url
        Where its OpenAI interface is, with or without ``/v1``.
    patience_s
        A server that says nothing for so long has stalled [s].
    """

    def __init__(self, url: str, patience_s: float = 60.0) -> None:
        self._httpx = needed("httpx")
        self.root = url.rstrip("/").removesuffix("/v1")
        self._patience_s = patience_s
        self._model = ""

    async def __aenter__(self) -> Self:
        limits = self._httpx.Limits(max_connections=None, max_keepalive_connections=None)
        timeout = self._httpx.Timeout(self._patience_s)
        # A proxy of the environment would be timed too.
        self._client = self._httpx.AsyncClient(base_url=self.root, limits=limits, timeout=timeout, trust_env=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def model(self) -> dict[str, Any]:
        """Return the entry of its first model in ``/v1/models``.

        Raises
        ------
        EngineUnfit
            It serves no model there: it is no such server.
        EngineFailed
            It does not answer.
        """
        async with self._told():
            answer = await self._client.get("/v1/models")
        try:
            entry = dict(answer.json()["data"][0]) if answer.status_code == 200 else {}
            self._model = str(entry["id"])
        except (ValueError, KeyError, IndexError, TypeError):
            said = f"{self.root}/v1/models says {answer.status_code}: {answer.text[:_SAID]!r}"
            raise EngineUnfit(f"no OpenAI-compatible server: {said}") from None
        return entry

    async def version(self) -> str | None:
        """Return the version that vLLM tells, if it does."""
        async with self._told():
            answer = await self._client.get("/version")
        try:
            return str(answer.json()["version"])
        except (ValueError, KeyError, TypeError):
            return None

    async def metrics(self) -> str | None:
        """Return the text of ``/metrics``; None if there is none."""
        async with self._told():
            answer = await self._client.get("/metrics")
        return answer.text if answer.status_code == 200 else None

    async def complete(self, prompt_ids: list[int], output_tokens: int) -> AsyncIterator[Tokens]:
        """Have a response of so many tokens generated, and tell of each piece as it comes.

        Raises
        ------
        EngineUnfit
            It does not take prompts of token ids.
        EngineFailed
            It says no, stalls, or breaks off.
        """
        body = {
            "model": self._model,
            "prompt": prompt_ids,
            "max_tokens": output_tokens,
            "temperature": 1.0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }
        total, reason = 0, None
        async with self._told(), self._client.stream("POST", "/v1/completions", json=body) as answer:
            if answer.status_code != 200:
                said = (await answer.aread()).decode(errors="replace")[:_SAID]
                fault = EngineUnfit if answer.status_code == 400 else EngineFailed
                raise fault(f"{self.root}/v1/completions says {answer.status_code}: {said}")
            async for line in answer.aiter_lines():
                if not line.startswith("data:"):
                    continue
                text = line.removeprefix("data:").strip()
                if text == "[DONE]":
                    return
                piece = self._piece(text)
                choices, usage = piece.get("choices") or [], piece.get("usage") or {}
                before = total
                # Without usage in each piece, each piece is a token.
                total = int(usage.get("completion_tokens", total + bool(choices)))
                ended = choices[0].get("finish_reason") if choices else None
                if total > before or (ended and reason is None):
                    reason = reason or ended
                    yield Tokens(total, reason)
        raise EngineFailed(f"{self.root} broke off after {total} of {output_tokens} tokens")

    def _piece(self, text: str) -> dict[str, Any]:
        try:
            piece = json.loads(text)
        except ValueError:
            raise EngineFailed(f"{self.root} streams something else than JSON: {text[:_SAID]!r}") from None
        if not isinstance(piece, dict) or "error" in piece:
            raise EngineFailed(f"{self.root} says in the middle of a response: {text[:_SAID]}")
        return piece

    @asynccontextmanager
    async def _told(self) -> AsyncIterator[None]:
        """Turn what can go wrong on the way into a fault that says it."""
        httpx = self._httpx
        try:
            yield
        except httpx.TimeoutException as error:
            raise EngineFailed(f"{self.root} stalled: it said nothing for {self._patience_s:g} s") from error
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise EngineUnfit(f"{self.root} is no address of a server: {error}") from error
        except httpx.ConnectError as error:
            raise EngineFailed(f"{self.root} cannot be reached: {error}") from error
        except httpx.HTTPError as error:
            raise EngineFailed(f"{self.root} broke off: {error or type(error).__name__}") from error
