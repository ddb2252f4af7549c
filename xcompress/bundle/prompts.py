"""The prompts of a bundle: texts by name, in front of queries, of documents, or for other tasks."""

from collections.abc import Mapping, Sequence
from typing import Any

from xcompress.errors import InputError, short_repr
from xcompress.tokenizer_file import prefix_problem

QUERY = ("query",)
DOCUMENT = ("document", "passage", "corpus")
"""Names of the prompts for documents, in the order in which sentence-transformers tries them."""
_NAMES_SHOWN = 20


def choose_prompt(
    manifest: Mapping[str, Any],
    prompt_name: str | None = None,
    prompt: str | None = None,
    *,
    defaults: Sequence[str] = (),
) -> str:
    """Return the text in front of every sentence: the prompt, the one of a name, or if neither is given the prefix.

    :param defaults: names of prompts; the first that the bundle has stands in place of the prefix.
    :raises InputError: when both are given, there is no prompt of the name, or a bundle could not have the text.
    """
    prompts = manifest.get("prompts", {})
    if prompt is not None:
        if prompt_name is not None:
            raise InputError("a prompt and the name of a prompt are both given; give one of them")
        if problem := _prompt_problem(prompt):
            raise InputError(f"the prompt {problem}; give another")
        return prompt
    if prompt_name is None:
        return str(next((prompts[name] for name in defaults if name in prompts), manifest["prefix"]))
    if not isinstance(prompt_name, str) or prompt_name not in prompts:
        names = ", ".join(map(short_repr, [*prompts][:_NAMES_SHOWN])) + (
            " and others" if len(prompts) > _NAMES_SHOWN else ""
        )
        advice = f"the bundle has {names}; choose one" if prompts else "the bundle has none; give the text of a prompt"
        raise InputError(f"there is no prompt {short_repr(prompt_name)}; {advice}")
    return str(prompts[prompt_name])


def prompts_problem(prompts: Mapping[str, object]) -> str | None:
    """Return what is wrong with prompts by name, if a bundle could not have them, or None."""
    for name, text in prompts.items():
        if problem := prefix_problem(name):
            return f"the name of a prompt {problem}"
        if problem := _prompt_problem(text):
            return f"the prompt {short_repr(name)} {problem}"
    return None


def _prompt_problem(text: object) -> str | None:
    return prefix_problem(text) if isinstance(text, str) else f"is {type(text).__name__}, not text"
