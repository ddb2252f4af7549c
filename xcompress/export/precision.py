"""Which precision each product gets, tried out on graphs in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import onnxruntime

from xcompress import console
from xcompress.export.gate import Cost, Encode, Fall, Vectors, fallen, graded_scores, site_costs
from xcompress.export.graph import Form, build
from xcompress.export.graphs import with_levels
from xcompress.export.prepare import Prepared
from xcompress.export.products import Level
from xcompress.export.reference import Reference, in_turn
from xcompress.export.search import Trade, search, trade_text
from xcompress.export.sentences import packaged_text, spread
from xcompress.export.sites import int8_bytes, sites
from xcompress.export.verify import Bounds, encode_with
from xcompress.metrics import cosines
from xcompress.student import encode, token_ids

SAMPLE = 96
"""Sentences to tell with which products cost most."""


@dataclass(frozen=True)
class Trial:
    """A student in one form, without a file."""

    prepared: Prepared
    form: Form

    def at(self, levels: Mapping[str, str]) -> "Trial":
        """Return the trial with some products at other levels."""
        return replace(self, form=with_levels(self.form, levels))  # type: ignore[arg-type]

    def levels(self) -> dict[str, Level]:
        """Return every product's level."""
        return {name: self.form.products.level(site) for name, site in sites(self.prepared.student).items()}

    def encode(self) -> Encode:
        """Open the graph for encoding."""
        student, tokenizer = self.prepared.student, self.prepared.tokenizer
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        graph = build(student, self.form).SerializeToString()
        session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        pad = student.config.pad_token_id
        return lambda texts: encode_with(session, token_ids(tokenizer, texts, student.config), pad)

    def costs(self) -> list[Cost]:
        """Measure what each product costs."""
        return site_costs(self._build, list(self.levels()), *self._sample(), levels=self.levels())

    def search(
        self,
        before: Mapping[str, float],
        points: float,
        languages: Sequence[str],
        text: Mapping[str, Sequence[str]],
        reference: Reference,
        bounds: Bounds | None = None,
    ) -> Trade:
        """Raise products until no language pair loses more than some points, and vectors are within their bounds.

        Prints the trade.

        :param before: the scores to compare with.
        :param text: the sentences of the reference.
        :raises GateError: when that cannot be reached.
        """
        limits = bounds or Bounds()

        def passes(encoder: Encode) -> list[Fall]:
            falls = fallen(before, graded_scores(encoder, languages), points)
            return falls or _too_far(encoder, text, reference, limits)

        trade = search(self._build, self.levels(), passes, int8_bytes(sites(self.prepared.student)), *self._sample())
        for line in trade_text(trade):
            console.say(line)
        return trade

    def _build(self, levels: Mapping[str, str]) -> Encode:
        return self.at(levels).encode()

    def _sample(self) -> tuple[list[str], Vectors]:
        texts = spread(in_turn(packaged_text()), SAMPLE)
        return texts, encode(self.prepared.student, self.prepared.tokenizer, texts)


def _too_far(
    encode_texts: Encode, text: Mapping[str, Sequence[str]], reference: Reference, limits: Bounds
) -> list[Fall]:
    """List the languages whose vectors are beyond a bound, as cosines times 100."""
    falls = []
    for language, sentences in text.items():
        found = cosines(encode_texts(list(sentences)), reference.vectors[language])
        for what, bound, value in (
            ("mean", limits.mean_cosine, found.mean()),
            ("worst", limits.worst_cosine, found.min()),
        ):
            if not value >= bound:
                falls.append(Fall(f"{what} cosine in {language}", 100 * bound, 100 * float(value)))
    return falls
