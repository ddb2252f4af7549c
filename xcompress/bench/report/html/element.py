"""Build HTML as a tree, so that text is escaped when it is written."""

from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element, tostring

from xcompress.printable import printable

Node = Element | str
BLOCKS = {"p", "li", "tr", "table", "section", "figure", "div", "dl", "h1", "h2", "h3", "head", "style", "meta", "img"}
"""Followed by a line break, for readers of the source."""


def tag(name: str, /, *children: Node | None, **attributes: str | int) -> Element:
    """Make an element; None is no child, and `class_` and `aria_label` are the attributes class and aria-label."""
    names = {key.rstrip("_").replace("_", "-"): str(value) for key, value in attributes.items()}
    element = Element(name, names)
    for child in children:
        if isinstance(child, Element):
            element.append(child)
        elif child and len(element):
            element[-1].tail = (element[-1].tail or "") + child
        elif child:
            element.text = (element.text or "") + child
    element.tail = "\n" if name in BLOCKS else None
    return element


def each(name: str, items: Iterable[Node]) -> list[Element]:
    """Wrap every item in an element."""
    return [tag(name, item) for item in items]


def table(caption: str, head: Sequence[str], *bodies: Element, first: str = "subject") -> Element:
    """Make a table that scrolls when it is too wide.

    :param head: of every column but the first.
    :param first: head of the first column.
    """
    columns = (tag("th", name, scope="col", class_="name" if name == first else "") for name in (first, *head))
    whole = tag("table", tag("caption", tag("span", caption)), tag("thead", tag("tr", *columns)), *bodies)
    return tag("div", whole, class_="scroll", role="region", tabindex=0, aria_label=caption)


def document(root: Element) -> str:
    """Return the whole page, with control characters as escapes: HTML has no way to write them."""
    text = tostring(root, encoding="unicode", method="html")
    return f"<!DOCTYPE html>\n{printable(text.strip())}\n"
