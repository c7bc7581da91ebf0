"""Which columns of a request trace mean what, and their values as numbers.

The alias table is the one place that knows other programs' names. Names are compared without case, spaces, ``_`` and
``-``, so ``ContextTokens`` is ``context_tokens``.
"""
# pyright: reportAttributeAccessIssue=false
# (pyarrow.compute makes its functions when it is imported)

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rollsim.traces.errors import Fault
from rollsim.traces.schema import ROLLOUTS

ALIASES: dict[str, tuple[str, ...]] = {
    "arrival": (
        "arrival_s", "arrival_time_s", "t_submit_s", "submit_s", "arrival", "arrival_time", "arrived_at",
        "timestamp_s", "timestamp_ms", "arrival_ms", "arrival_time_ms", "timestamp",
    ),
    "prompt_tokens": (
        "prompt_tokens", "prompt_length", "prompt_len", "num_prompt_tokens", "input_tokens", "input_length",
        "input_len", "num_input_tokens", "num_prefill_tokens", "context_tokens", "isl",
    ),
    "output_tokens": (
        "output_tokens", "output_length", "output_len", "num_output_tokens", "response_tokens", "response_length",
        "response_len", "completion_tokens", "generated_tokens", "num_generation_tokens", "num_decode_tokens", "osl",
    ),
    "group": ("group_id", "group", "group_index", "prompt_id", "problem_id"),
    "id": ("sample_id", "request_id", "id", "trajectory_id"),
    "priority": ("priority",),
    "truncated": ("is_truncated", "truncated"),
    "reward": ("reward", "is_correct"),
    "unfinished": ("status",),
    "extra": ("is_extra",),
}  # fmt: skip
REQUIRED = ("prompt_tokens", "output_tokens")
EXAMPLES_SHOWN = 5
# Share of characters alike from which a name is taken for a misspelt one: a file with one is refused, so it is high.
_SLIP = 0.85

_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?$"
_DATE = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?$"


@dataclass
class RowFaults:
    """Collects what is wrong with single rows: per kind the count and the first few examples.

    Parameters
    ----------
    file
        Name of the trace, for the messages.
    place_of
        Number that a user finds a row under, from its index.
    unit
        What those numbers count: ``line`` or ``row``.
    """

    file: str
    place_of: Callable[[Sequence[int]], list[int]]
    unit: str
    faults: list[Fault] = field(default_factory=list)

    def add(self, bad: np.ndarray, column: str, message: str, allowed: str, values: pa.Array | None = None) -> None:
        """Note that the rows where `bad` is true have a fault, if any has."""
        indices = np.flatnonzero(bad)
        if not len(indices):
            return
        shown = indices[:EXAMPLES_SHOWN].tolist()
        given = None if values is None else tuple(_short(values[index].as_py()) for index in shown)
        self.faults.append(
            Fault(
                self.file,
                f"{describe(self.place_of(shown), self.unit, len(indices))}, column {column}",
                given[0] if given is not None and len(set(given)) == 1 else given,
                allowed,
                message=message,
            )
        )


def describe(numbers: Sequence[int], unit: str, count: int) -> str:
    """Name some rows: ``line 3``, ``lines 3, 5``, ``lines 1, 2, 3, 4, 5 and 812 more``."""
    listed = ", ".join(map(str, numbers))
    more = f" and {count - len(numbers)} more" if count > len(numbers) else ""
    return f"{unit}{'s' if count > 1 else ''} {listed}{more}"


def match(names: Sequence[str]) -> dict[str, list[str]]:
    """Return, for each meaning, those of the names that carry it, in the order of the alias table."""
    plain = {}
    for name in names:
        plain.setdefault(_plain(name), name)
    found = {
        meaning: [plain[_plain(alias)] for alias in aliases if _plain(alias) in plain]
        for meaning, aliases in ALIASES.items()
    }
    return {meaning: list(dict.fromkeys(found[meaning])) for meaning in found if found[meaning]}


def missing(file: str, names: Sequence[str]) -> list[Fault]:
    """Return one fault for each required meaning that none of the names carries."""
    found = match(names)
    taken = {name for columns in found.values() for name in columns}
    listed = ", ".join(map(str, list(names)[:20])) or "no column"
    return [
        Fault(
            file,
            "columns",
            listed,
            f"{meaning} under one of: {', '.join(ALIASES[meaning])}",
            _most_alike(ALIASES[meaning], [name for name in names if name not in taken]),
            f"no column for {meaning}",
        )
        for meaning in REQUIRED
        if meaning not in found
    ]


def misspelt(file: str, names: Sequence[str]) -> list[Fault]:
    """Return a fault for each unknown name that looks like one of an optional meaning that no other name carries."""
    found = match(names)
    absent = [
        alias for meaning in ALIASES if meaning not in found and meaning not in REQUIRED for alias in ALIASES[meaning]
    ]
    return [
        Fault(file, "columns", name, "another name; or leave it out", alias, "unknown column")
        for name in unknown(names)
        if (alias := _meant(name, absent)) is not None
    ]


def unknown(names: Sequence[str]) -> list[str]:
    """Return the names that carry no meaning, here or in a table of ours."""
    known = {_plain(alias) for aliases in ALIASES.values() for alias in aliases} | set(map(_plain, ROLLOUTS.names))
    return [name for name in names if _plain(name) not in known]


def _meant(name: str, aliases: Sequence[str]) -> str | None:
    """Return the alias that differs only by a slip of the pen, or by its vowels."""
    plain = _plain(name)
    alike = [(difflib.SequenceMatcher(None, _plain(alias), plain).ratio(), alias) for alias in aliases]
    consonants = _consonants(name)
    if len(consonants) > 2:
        alike += [(1.0, alias) for alias in aliases if _consonants(alias) == consonants]
    ratio, alias = max(alike, key=lambda pair: pair[0], default=(0.0, None))
    return alias if ratio >= _SLIP else None


def _consonants(name: str) -> str:
    return re.sub("[aeiou]", "", _plain(name))


def numbers(array: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return an array's values as float64, where there is none (null, NaN), and where it is no number."""
    array = plain_array(array)
    count = len(array)
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        text = pc.ascii_ltrim(pc.utf8_trim_whitespace(array), "+")
        is_number = pc.match_substring_regex(text, _NUMBER)
        malformed = ~pc.fill_null(is_number, True).to_numpy(zero_copy_only=False)
        text = pc.if_else(is_number, text, pa.scalar(None, text.type))
        array = text.cast(pa.float64())
    elif pa.types.is_integer(array.type) or pa.types.is_floating(array.type) or pa.types.is_decimal(array.type):
        malformed = np.zeros(count, bool)
        array = array.cast(pa.float64(), safe=False)
    else:
        malformed = array.is_valid().to_numpy(zero_copy_only=False)
        array = pa.nulls(count, pa.float64())
    values = array.to_numpy(zero_copy_only=False)
    return values, np.isnan(values) & ~malformed, malformed


def truths(array: pa.Array) -> pa.Array:
    """Return an array with 1 for true and 0 for false, as values or as text; what is neither stays."""
    array = plain_array(array)
    if pa.types.is_boolean(array.type):
        return array.cast(pa.float64(), safe=False)
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        text = pc.utf8_lower(pc.utf8_trim_whitespace(array))
        zero = pc.if_else(pc.equal(text, "false"), pa.scalar("0", array.type), array)
        return pc.if_else(pc.equal(text, "true"), pa.scalar("1", array.type), zero)
    return array


def times_s(array: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return dates as seconds since the earliest, where there is none, and where it is no date; None if not dates.

    Text counts as dates if its first value is one (ISO 8601). Times with a zone are put on UTC; without one they are
    taken as they stand.
    """
    found = moments_us(array)
    if found is None:
        return None
    ticks, absent, malformed = found
    usable = ~absent & ~malformed
    start = ticks[usable].min() if usable.any() else 0
    return np.where(usable, ticks - start, 0) / 1e6, absent, malformed


def moments_us(array: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return dates as microseconds on the clock, as `times_s` reads them."""
    array = plain_array(array)
    absent = array.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_temporal(array.type):
        if not (pa.types.is_timestamp(array.type) or pa.types.is_date(array.type)):
            return None
        stamps = array.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
        malformed = np.zeros(len(array), bool)
    elif pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        text = pc.utf8_trim_whitespace(array)
        is_date = pc.fill_null(pc.match_substring_regex(text, _DATE), False)
        first = int(np.argmin(absent))
        if absent.all() or not is_date[first].as_py():
            return None
        stamps, malformed = _parse_dates(pc.if_else(is_date, text, pa.scalar(None, text.type)))
        malformed |= ~is_date.to_numpy(zero_copy_only=False) & ~absent
    else:
        return None
    return pc.fill_null(stamps, 0).to_numpy(zero_copy_only=False), absent, malformed


def plain_array(array: pa.Array) -> pa.Array:
    """Return an array without dictionary or null type, and text as text."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_null(array.type):
        array = array.cast(pa.float64())
    if pa.types.is_string_view(array.type):
        array = array.cast(pa.string())
    return array


def _parse_dates(text: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """Return microseconds on UTC (null where there is no such day or hour), and where that is."""
    zoned = pc.fill_null(pc.match_substring_regex(text, r"(Z|[+-]\d\d:?\d\d)$"), False)
    seven_digits = pc.replace_substring_regex(text, r"(\.\d{6})\d+", r"\1")
    moments = pc.if_else(zoned, seven_digits, pc.binary_join_element_wise(seven_digits, "Z", ""))
    try:
        return moments.cast(pa.timestamp("us", "UTC")).cast(pa.int64()), np.zeros(len(text), bool)
    except pa.ArrowInvalid:
        parsed = [_parse_date(moment) for moment in moments]
        bad = np.array([value is None and moment.is_valid for value, moment in zip(parsed, moments, strict=True)])
        return pa.array(parsed, pa.int64()), bad


def _parse_date(moment: pa.Scalar) -> int | None:
    try:
        return moment.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).as_py()
    except pa.ArrowInvalid:
        return None


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", "").replace("-", "").replace(" ", "")


def _most_alike(aliases: Sequence[str], names: Sequence[str]) -> str | None:
    alike = [
        (difflib.SequenceMatcher(None, _plain(alias), _plain(name)).ratio(), name)
        for name in names
        for alias in aliases
    ]
    ratio, name = max(alike, default=(0.0, None))
    return name if ratio >= 0.6 else None


def _short(value: object) -> object:
    if not isinstance(value, str | int | float | None):
        value = repr(value)
    return value[:40] + "..." if isinstance(value, str) and len(value) > 40 else value
