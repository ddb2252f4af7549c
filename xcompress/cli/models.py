"""`xcompress models`: list the released models."""

from xcompress.cli.options import AsJson

_PARTIAL_AVERAGES = ("en-en", "other monolingual", "xx>en", "en>xx")
"""Averages that are part of others in the table; --json has them all."""


def models(json: AsJson = False) -> None:
    """List the models that ship with xcompress.

    Shows languages, size, dimension of the vectors and scores on dev sets. Pass a name to --model of embed and search,
    or to Encoder.from_pretrained. To fine-tune a model, pass its name to dequantize. --json prints the folder of each
    model. Its README.md describes the training data and the limits of the model.

    Example:  xcompress models

    Example:  xcompress models --json
    """
    from xcompress.bundle.released import released_models
    from xcompress.console import emit_json, say, table
    from xcompress.files import megabytes

    released = released_models()
    if json:
        emit_json(released)
        return
    if not released:
        say("this installation ships no released model; make one with xcompress distill and xcompress export")
        return
    columns = []
    for model in released:
        facts = {
            "on disk": megabytes(model["bytes"]),
            "dimension": str(model["dimension"]),
            "languages": " ".join(model["languages"]),
        }
        for test, averages in model["dev"].items():
            shown = [(name, value) for name, value in averages.items() if name not in _PARTIAL_AVERAGES]
            facts |= {f"{test}, {name}".removesuffix(", average"): f"{value:.1f}" for name, value in shown}
        columns.append(facts)
    names = dict.fromkeys(name for facts in columns for name in facts)
    rows = [[name, *(facts.get(name, "-") for facts in columns)] for name in names]
    head = ("", *(f"{model['name']}{' (default)' * (model is released[0])}" for model in released))
    table("Models that ship with xcompress, and their scores on dev sets", head, rows)
