"""Drawings made fit to stand inside a page: nothing that runs, loads or clashes.

Matplotlib's SVG comes as a document of its own, with ids that two figures share, a style rule for
every element of the page it lands in, and addresses in its metadata.
"""

import re
from pathlib import Path
from xml.etree import ElementTree

from dpatlas.errors import InputError

ELEMENTS = frozenset(
    (
        "svg",
        "g",
        "defs",
        "symbol",
        "use",
        "path",
        "rect",
        "circle",
        "ellipse",
        "line",
        "polyline",
        "polygon",
        "text",
        "tspan",
        "title",
        "desc",
        "clipPath",
        "mask",
        "pattern",
        "linearGradient",
        "radialGradient",
        "stop",
        "marker",
        "image",
    )
)
_LOCAL_URL = re.compile(r"url\(\s*['\"]?#([^'\")]+)['\"]?\s*\)")
_ANY_URL = re.compile(r"url\s*\(", re.IGNORECASE)
# A backslash can spell url( in a way that no pattern sees.
_ESCAPE = "\\"


def inline_svg(path: Path, prefix: str, label: str) -> str:
    """The drawing of an SVG file as markup for an HTML page.

    prefix: put before every id and every reference to one, so that figures do not clash; label: the
    accessible name. Only drawing elements, references inside the file and embedded PNG images are
    kept; size attributes go, so that style sheets decide.

    Raises InputError for a file that is missing or is no SVG.
    """
    try:
        root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(str(path), error.strerror or "unreadable", "an SVG file") from None
    except (ElementTree.ParseError, UnicodeDecodeError) as error:
        raise InputError(str(path), str(error), "an SVG file") from None
    if _local(root.tag) != "svg":
        raise InputError(str(path), f"the element {_local(root.tag)}", "an SVG file")
    _clean(root, prefix)
    for size in ("width", "height"):
        root.attrib.pop(size, None)
    root.attrib |= {"role": "img", "aria-label": label}
    return ElementTree.tostring(root, encoding="unicode")


def _clean(element: ElementTree.Element, prefix: str) -> None:
    element.tag = _local(element.tag)
    attributes, element.attrib = element.attrib, {}
    for qualified, value in attributes.items():
        name = _local(qualified)
        allowed = _attribute(name, value, prefix)
        if allowed is not None:
            element.set(name, allowed)
    for child in list(element):
        if isinstance(child.tag, str) and _local(child.tag) in ELEMENTS:
            _clean(child, prefix)
        else:
            element.remove(child)


def _attribute(name: str, value: str, prefix: str) -> str | None:
    if name.lower().startswith("on") or _ESCAPE in value:
        return None
    if name == "id":
        return prefix + value
    if name == "href":
        if value.startswith("#"):
            return f"#{prefix}{value[1:]}"
        return value if value.startswith("data:image/png;base64,") else None
    local = _LOCAL_URL.sub(rf"url(#{prefix}\1)", value)
    foreign = len(_ANY_URL.findall(local)) != len(_LOCAL_URL.findall(local))
    return None if foreign else local


def _local(name: str) -> str:
    return name.rpartition("}")[2]
