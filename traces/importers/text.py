"""Counts tokens of text, if the user gave a tokenizer; otherwise text has no length. Text is never kept."""

import hashlib
import json
from typing import Any

from rollsim.traces.errors import BadInput, Fault
from rollsim.traces.importers.draft import Draft

_SPECIAL = "token counts are of text, encoded again without special tokens and chat templates"


class Counter:
    """Counts the tokens of texts.

    Parameters
    ----------
    draft
        Its options name the tokenizer; what counting means is noted in it.

    Raises
    ------
    BadInput
        If the tokenizer cannot be read, or the package that reads it is not installed.
    """

    def __init__(self, draft: Draft) -> None:
        path = draft.options.tokenizer
        self._tokenizer: Any = None
        if path is None:
            return
        try:
            from tokenizers import Tokenizer  # noqa: PLC0415 # pyright: ignore[reportMissingImports] - an extra, and heavy
        except ImportError as error:
            fault = Fault("--tokenizer", given=str(path), allowed="pip install 'rollsim[tokenizer]'")
            raise BadInput(fault) from error
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:
            reason = (str(error).splitlines() or ["?"])[0][:200]
            raise BadInput(Fault("--tokenizer", given=str(path), allowed="a tokenizer.json", message=reason)) from error
        draft.derived.append(_SPECIAL)

    def count(self, text: object) -> int | None:
        """Return the tokens of a text, or of what chat messages say; None without a tokenizer, or for neither."""
        if isinstance(text, list) and all(isinstance(entry, dict) for entry in text):
            counts = [self.count(entry.get("content")) for entry in text]
            known = [count for count in counts if count is not None]
            return sum(known) if known and len(known) == len(counts) else None
        if self._tokenizer is None or not isinstance(text, str):
            return None
        clean = text.encode("utf-8", "replace").decode("utf-8")
        return len(self._tokenizer.encode(clean, add_special_tokens=False).ids)


class Groups:
    """Numbers for the groups of a run: equal keys have equal numbers."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}

    def number(self, *key: object) -> int:
        """Return the number of a key."""
        return self._numbers.setdefault(key, len(self._numbers))

    def of_prompt(self, step: object, prompt: object) -> int | None:
        """Return the number of the group of a prompt within a step; the prompt is kept as a digest alone."""
        if prompt is None:
            return None
        content = prompt if isinstance(prompt, str) else json.dumps(prompt, default=str)
        return self.number(step, hashlib.blake2b(content.encode("utf-8", "replace"), digest_size=8).digest())
