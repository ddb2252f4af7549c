"""HTML built as a tree: what is put in is escaped when it is written."""

from collections.abc import Iterable
from xml.etree.ElementTree import Element, tostring

Node = Element | str
BLOCKS = {"p", "li", "tr", "table", "section", "figure", "div", "dl", "h1", "h2", "h3", "head", "style", "meta", "img"}
"""Followed by a new line, for those who read the source."""


def tag(name: str, /, *children: Node | None, **attributes: str | int) -> Element:
    """Make an element; `class_` and `aria_label` stand for class and aria-label, None for no child."""
    names = {key.rstrip("_").replace("_", "-"): str(value) for key, value in attributes.items()}
    element = Element(name, names)
    for child in children:
        _append(element, child)
    element.tail = "\n" if name in BLOCKS else None
    return element


def each(name: str, items: Iterable[Node]) -> list[Element]:
    """Wrap every item in an element of its own."""
    return [tag(name, item) for item in items]


def document(root: Element) -> str:
    """Write a whole page; what cannot be written as UTF-8 becomes a question mark."""
    text = tostring(root, encoding="unicode", method="html")
    return f"<!DOCTYPE html>\n{text.strip()}\n".encode("utf-8", "replace").decode()


def _append(element: Element, child: Node | None) -> None:
    if isinstance(child, Element):
        element.append(child)
    elif child and len(element):
        element[-1].tail = (element[-1].tail or "") + child
    elif child:
        element.text = (element.text or "") + child
