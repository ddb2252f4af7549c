"""`xcompress models`: list the released models."""

from xcompress.cli.options import AsJson

_PARTIAL_AVERAGES = ("en-en", "other monolingual", "xx>en", "en>xx")
"""Averages that are part of others in the table; --json has them all."""


def models(json: AsJson = False) -> None:
    """List the models that ship with xcompress: languages, size, dimension of the vectors, dev scores.

    Pass a name to --model of embed and search, or to Encoder.from_pretrained. The README.md in a model's folder, which
    --json prints, describes the training data and the limits of the model.

    Example:  xcompress models

    Example:  xcompress models --json
    """
    from json import dumps

    from xcompress.bundle.released import released_models
    from xcompress.console import emit, say, table
    from xcompress.files import megabytes

    released = released_models()
    if json:
        emit(dumps(released, indent=2, ensure_ascii=False))
        return
    if not released:
        say("this installation ships no released model; make one with xcompress distill and xcompress export")
        return
    rows = []
    for model in released:
        scores = []
        for test, averages in model["dev"].items():
            shown = [f"{name} {value:.1f}" for name, value in averages.items() if name not in _PARTIAL_AVERAGES]
            scores.append(f"{test}: {', '.join(shown)}")
        figures = [megabytes(model["bytes"]), str(model["dimension"])]
        rows.append([model["name"], *figures, " ".join(model["languages"]), "\n".join(scores) or "not recorded"])
    head = ("name", "on disk", "dimension", "languages", "dev scores")
    table("Models that ship with xcompress; the first is the default", head, rows)
