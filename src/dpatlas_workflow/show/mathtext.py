"""Formulas as matplotlib takes them, in Unicode and in words."""

import html
import re

# Of TeX, where HTML has no or another entity of the name.
SYMBOLS = {"cdot": "·", "infty": "∞", "sqrt": "√", "to": "→", "sim": "~", "varepsilon": "ε"}
SYMBOLS |= {"|": "‖", ",": " ", " ": " "}
SUPERSCRIPTS = str.maketrans("0123456789n", "⁰¹²³⁴⁵⁶⁷⁸⁹ⁿ")


def number(value: float, digits: int = 3) -> str:
    """At most so many digits; small and large numbers by powers of ten."""
    mantissa, mark, exponent = f"{value:.{digits}g}".partition("e")
    lead = "" if mantissa == "1" else rf"{mantissa} \times "
    return rf"${lead}10^{{{int(exponent)}}}$" if mark else mantissa.replace("-", "−")


def in_unicode(text: str) -> str:
    """Matplotlib's text with formulas in Unicode; powers and indices stay ^{...} and _{...}."""
    parts = re.split(r"(?<!\\)\$", text)
    parts[1::2] = [_formula(part) for part in parts[1::2]]
    return "".join(parts).replace(r"\$", "$").replace("\N{MINUS SIGN}", "−")


def plain(text: str) -> str:
    """Matplotlib's text as it is drawn, its longest line, without signs that take no room."""
    return max(re.sub(r"[\^_]?[{}]", "", in_unicode(text)).split("\n"), key=len)


def _formula(text: str) -> str:
    text = re.sub(r"\\(?:mathdefault|mathrm|text|mathbf|mathcal|mathbb)\b", "", text)
    text = re.sub(r"\\(?:hat|bar|tilde)\{?(\\?\w+)\}?", r"\1", text)
    text = re.sub(r"\\d?frac\{([^{}]*)\}\{([^{}]*)\}", r"\1/\2", text)
    text = re.sub(r"\\([A-Za-z]+|[|, ])", _symbol, text.replace("-", "−"))
    text = re.sub(r"([\^_])([^{\s])", r"\1{\2}", text)
    # A power in a power.
    text = re.sub(r"(\{[^{}]*)\^\{([0-9n])\}", lambda m: m[1] + m[2].translate(SUPERSCRIPTS), text)
    # Braces that group nothing but what is drawn alike, from the inside out.
    before = ""
    while before != text:
        before, text = text, re.sub(r"(?<![\^_])\{((?:[^{}]|[\^_]\{[^{}]*\})*)\}", r"\1", text)
    return re.sub(r"\s*([=<>≤≥≪≫×≈])\s*", r" \1 ", text).replace("\\", "")


def _symbol(found: re.Match[str]) -> str:
    return SYMBOLS.get(found[1]) or html.unescape(f"&{found[1]};").strip("&;")
