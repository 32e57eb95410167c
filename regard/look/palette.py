"""Colours that colour-blind readers can distinguish and a printer can print.

A palette is nine colours from weight 0 to weight 1, mixed linearly between neighbours into `SHADES`, so that the
picture, the page and the terminal show the same colour for the same weight.
"""

from regard.errors import check_known

PALETTES: dict[str, tuple[str, ...]] = {
    "blue": ("#fcfdff", "#dfebf7", "#bfd7ec", "#97bfdf", "#6ba3cf", "#4585bb", "#2667a2", "#124983", "#082c5c"),
    "cividis": ("#00224e", "#1a386f", "#434e6c", "#61656f", "#7d7c78", "#9b9476", "#bcae6c", "#dec958", "#fee838"),
    "viridis": ("#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725"),
}
DARK = {  # the same on a dark page: weight 0 is as dark as the page
    "blue": ("#1d2024", "#202d3b", "#233b54", "#274c70", "#2d5f8e", "#3b77ad", "#5d95c7", "#8fbadf", "#d3e6f6"),
    "diverging": ("#b9a2f2", "#685a91", "#2b2e33", "#8a5a36", "#f2996a"),
}
DIVERGING = ("#5e3c99", "#b2abd2", "#f7f7f7", "#fdb863", "#e66101")  # purple - white - orange
HEADS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#f0e442", "#000000")  # Okabe and Ito
CHANGED = "#d55e00"  # what a what-if changed
SHADES = 256  # different colours of a palette
INK, FAINT = "#1b1f24", "#5b6470"

Colour = tuple[int, int, int]


def palette(name: str) -> tuple[str, ...]:
    """The nine colours of a palette."""
    check_known("palette", name, PALETTES)
    return PALETTES[name]


def mix(colours: tuple[str, ...], value: float) -> Colour:
    """The colour of `value` in 0..1 as red, green, blue in 0..255."""
    place = round(min(1.0, max(0.0, value)) * (SHADES - 1)) / (SHADES - 1) * (len(colours) - 1)
    at = min(int(place), len(colours) - 2)
    low, high, part = parse(colours[at]), parse(colours[at + 1]), place - at
    red, green, blue = (round(a + (b - a) * part) for a, b in zip(low, high, strict=True))
    return red, green, blue


def ramp(colours: tuple[str, ...]) -> dict[str, str]:
    """All colours from 0 to 1, six digits each, and the ink on each: "k" for black and "w" for white."""
    mixed = [mix(colours, at / (SHADES - 1)) for at in range(SHADES)]
    ink = "".join("k" if ink_on(one) == "#000000" else "w" for one in mixed)
    return {"hues": "".join(bytes(one).hex() for one in mixed), "ink": ink}


def parse(colour: str) -> Colour:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def luminance(colour: Colour) -> float:
    """Relative luminance as WCAG defines it."""
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (part / 255 for part in colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def ink_on(colour: Colour) -> str:
    """Black or white, whichever has more contrast on `colour`, always at least 4.5:1."""
    return "#000000" if luminance(colour) > 0.179 else "#ffffff"


def paint(text: str, colours: tuple[str, ...], value: float) -> str:
    """`text` for a terminal of 24-bit colour, on the colour of `value`."""
    back = mix(colours, value)
    return "\x1b[48;2;{};{};{};38;2;{};{};{}m".format(*back, *parse(ink_on(back))) + text + "\x1b[0m"
