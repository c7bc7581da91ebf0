"""Numbers, bars and wrapped lines of the reports, for text of at most 80 columns."""

import textwrap

WIDTH = 80
_BAR = "▏▎▍▌▋▊▉█"


def pair(name: str, value: str) -> list[str]:
    """Lines of a named value, indented after the first."""
    return wrap(f"{name:<13}{value}", indent=13)


def wrap(line: str, indent: int = 0) -> list[str]:
    """Cut a line at `WIDTH` columns."""
    return textwrap.wrap(line, WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False)


def named_row(name: str, width: int, cells: str) -> list[str]:
    """Lines of a table row: a name that is longer than its column goes on below, the cells stand beside its end."""
    indent = " " * (len(name) - len(name.lstrip()) + 4)
    *above, last = textwrap.wrap(name, width, subsequent_indent=indent, break_on_hyphens=False)
    return [*above, f"{last:<{width}}{cells}"]


def bar(value: float, top: float, cells: int) -> str:
    """Draw a bar of at most so many cells, in eighths."""
    eighths = round(8 * cells * value / top) if top > 0 else 0
    whole, rest = divmod(min(max(eighths, 1 if value > 0 else 0), 8 * cells), 8)
    return _BAR[-1] * whole + (_BAR[rest - 1] if rest else "")


def plural(count: int, one: str, many: str | None = None) -> str:
    """Write a count and what is counted."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def percent(value: float | None) -> str:
    """Write a share; a dash if it is not known."""
    return "-" if value is None else f"{value:.1%}"


def number(value: float | None) -> str:
    """Four digits or so: 0.01234, 1.234, 12.34, 123.4, 12,345."""
    if not value:
        return "-" if value is None else "0"
    for bound, digits in ((0.9995, 4), (9.995, 3), (99.95, 2), (999.5, 1)):
        if abs(value) < bound:
            return f"{value:.{digits}f}"
    return f"{value:,.0f}"


def si(count: float) -> str:
    """Write a count with three digits: 12, 1.23 k, 45.6 M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.3g} {letter}" if count < 999.5 * size else f"{count / size:,.0f} {letter}"
    return f"{count:,.0f}"
