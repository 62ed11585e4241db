"""Numbers as pages have them."""


def number(value: float | None, sign: bool = False) -> str:
    """Two decimals, or three digits of what is smaller than that shows; "" of None."""
    if value is None:
        return ""
    text = f"{value:.2f}" if abs(value) >= 0.01 or value == 0 else f"{value:.3g}"
    return "+" + text if sign and value > 0 else text


def with_deviation(value: float | None, deviation: float | None) -> str:
    """ "12.30 ± 0.08": a mean over seeds, its deviation no finer than it."""
    if value is None or deviation is None:
        return number(value)
    shown = f"{deviation:.2f}" if abs(value) >= 1 else number(deviation)
    return f"{number(value)} ± {shown}"
