"""Parse YAML that anyone may have written: bounded in size and nesting, and any fault is one line."""

import re
from copy import deepcopy
from functools import lru_cache
from typing import Any

import yaml

from xcompress.errors import InputError, first_line

LARGEST = 200_000
"""Characters of a text that is parsed."""
MOST_VALUES = 10_000
"""Keys and values of a text. Those behind an anchor count once more for each alias: a few lines can name billions."""
DEEPEST = 40
"""Levels of nesting."""
_TAG = "tag:yaml.org,2002:"
_TYPES = ("null", "bool", "int", "float", "str", "seq", "map")
_INTEGER_BITS = 64
_OTHER_BASE = re.compile(r"[-+]?0[0-9_]|.*:")
"""Starts 0100 and 1:30, which YAML 1.1 reads as 64 and 90."""
_Mark = Any
"""A position in the text; PyYAML's marks have no public type."""


class _Loader(yaml.SafeLoader):
    """Reads null, booleans, numbers, text, lists and mappings with distinct text keys. A date is text."""

    yaml_constructors = {  # noqa: RUF012 - as PyYAML declares it
        None: yaml.SafeLoader.yaml_constructors[None],
        **{f"{_TAG}{name}": yaml.SafeLoader.yaml_constructors[f"{_TAG}{name}"] for name in _TYPES},
    }
    yaml_implicit_resolvers = {  # noqa: RUF012
        start: [(tag, pattern) for tag, pattern in resolvers if tag != f"{_TAG}timestamp"]
        for start, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._values = self._depth = 0
        self._sizes: dict[yaml.Node, int] = {}
        """Values in each node that is complete."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Count the values of a node, those behind aliases included, before anything is made of them."""
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        is_alias = self.check_event(yaml.AliasEvent)
        before = self._values
        self._values += not is_alias
        self._depth += 1
        if self._depth > DEEPEST:
            raise _fault(mark, f"nested more than {DEEPEST} levels deep")
        node = super().compose_node(parent, index)
        self._depth -= 1
        if is_alias:
            if node not in self._sizes:
                raise _fault(mark, "an anchor that contains itself")
            self._values += self._sizes[node]
        if self._values > MOST_VALUES:
            raise _fault(mark, f"more than {MOST_VALUES:,} values, counting each use of its anchors")
        if node is not None and not is_alias:
            self._sizes[node] = self._values - before
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:  # noqa: ANN401 - PyYAML has no type for it
        """Refuse keys that are no text, such as 1 or no, and keys that are given twice."""
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if key.tag == f"{_TAG}merge":
                continue
            if not isinstance(key, yaml.ScalarNode) or key.tag != f"{_TAG}str":
                shown = f"{key.value!r:.40} " if isinstance(key, yaml.ScalarNode) else ""
                raise _fault(key.start_mark, f"the key {shown}is no text; quote it")
            if key.value in seen:
                raise _fault(key.start_mark, f"the key {key.value!r:.40} is given twice")
            seen.add(key.value)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> object:
        """Read one value; PyYAML lets the errors of int() and the like through."""
        kind = node.tag.removeprefix(_TAG)
        if kind in ("int", "float") and _OTHER_BASE.match(node.value):
            raise _fault(node.start_mark, f"{node.value!r:.40} is in base 8 or 60; write it in base 10, or quote it")
        try:
            value = super().construct_object(node, deep)
        except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
            raise _fault(node.start_mark, f"{node.value!r:.40} is not of the type {kind}") from error
        if isinstance(value, int) and value.bit_length() >= _INTEGER_BITS:
            raise _fault(node.start_mark, f"{node.value!r:.40} is too large a number")
        return value


class _TextLoader(_Loader):
    """Reads every value as text: `no` is Norwegian, not False."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - only the merge of mappings keeps its meaning
        start: [(tag, pattern) for tag, pattern in resolvers if tag == f"{_TAG}merge"]
        for start, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def parse_yaml(text: str, where: str, *, as_text: bool = False) -> Any:  # noqa: ANN401 - any YAML value
    """Return the values of a YAML text: null, booleans, numbers, text, lists, and mappings with text keys.

    :param where: what the text is, for error messages.
    :param as_text: read all scalars as text.
    :raises InputError: naming the line, when the text is not valid YAML, has duplicate keys, is longer than `LARGEST`,
        deeper than `DEEPEST`, or has more than `MOST_VALUES` values.
    """
    if len(text) > LARGEST:
        raise InputError(f"{where}: over {LARGEST:,} characters; give a shorter YAML text")
    try:
        return deepcopy(_parse(text, as_text))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        problem = " ".join(str(error.problem).split())
        indentation = ", or its indentation" * isinstance(error, yaml.parser.ParserError | yaml.scanner.ScannerError)
        raise InputError(f"{where}: line {line}: not valid YAML ({problem:.200}); correct it{indentation}") from error
    except (yaml.YAMLError, ValueError, LookupError, ArithmeticError) as error:
        raise InputError(f"{where}: not valid YAML ({first_line(error):.200}); correct it") from error


@lru_cache(128)  # recipes share what they extend, and PyYAML takes milliseconds for each
def _parse(text: str, as_text: bool) -> object:
    loader = (_TextLoader if as_text else _Loader)(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def _fault(mark: _Mark, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
