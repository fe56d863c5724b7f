"""Numbers as people read them: bounds rounded outward, shares in per cent."""

from decimal import ROUND_CEILING, ROUND_FLOOR, Context

__all__ = ["format_bound", "percent"]


def format_bound(value: float, side: str, digits: int = 4) -> str:
    """A bound in few digits, rounded away from what it bounds.

    Example:
        >>> format_bound(0.123456, "lower"), format_bound(0.123456, "upper")
        ('0.1234', '0.1235')
        >>> format_bound(0.0, "lower")
        '0'
    """
    towards = ROUND_CEILING if side == "upper" else ROUND_FLOOR
    return f"{float(Context(prec=digits, rounding=towards).create_decimal(value)):.{digits}g}"


def percent(share: float) -> str:
    """A share in per cent.

    Example:
        >>> percent(0.9665)
        '96.7 %'
    """
    return f"{100 * share:.1f} %"
