"""How much of two texts is kept where both do not fit, longest first."""


def kept_lengths(text: int, pair: int, room: int) -> tuple[int, int]:
    """How many tokens of two texts of these lengths are kept in ``room``.

    The result is that of taking tokens from the longer one, one by one, from the second
    if both are equally long.
    """
    half = room // 2
    if text + pair <= room:
        return text, pair
    if text <= half:
        return text, room - text
    if pair <= half:
        return room - pair, pair
    return room - half, half
