"""Numbers as a profile stores them."""


def rounded(value: float, digits: int = 6) -> float:
    """Round to that many significant digits: far below any fit error, and files stay small and comparable."""
    return float(f"{value:.{digits}g}")
