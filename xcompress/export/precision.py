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
from xcompress.export.verify import Bounds, beyond_bounds, encode_with
from xcompress.student import encode, token_ids

SAMPLE = 96
"""Sentences to tell with which products cost most."""


@dataclass(frozen=True)
class Opened:
    """A graph in memory, opened; maps texts to vectors (n, D)."""

    prepared: Prepared
    session: onnxruntime.InferenceSession

    def __call__(self, texts: list[str]) -> Vectors:
        """Encode texts."""
        config = self.prepared.student.config
        sequences = token_ids(self.prepared.tokenizer, texts, config)
        return encode_with(self.session, sequences, config.pad_token_id)


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

    def open(self) -> "Opened":
        """Write the graph and open it for encoding."""
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        graph = build(self.prepared.student, self.form).SerializeToString()
        return Opened(self.prepared, onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"]))

    def costs(self) -> list[Cost]:
        """Measure what each product costs."""
        return site_costs(self._build, list(self.levels()), *self._sample(), levels=self.levels())

    def search(
        self,
        before: Mapping[str, float],
        points: float,
        languages: Sequence[str],
        reference: Reference,
        bounds: Bounds | None = None,
    ) -> Trade:
        """Raise products until no language pair loses more than some points, and vectors are within their bounds.

        Prints the trade.

        :param before: the scores to compare with.
        :raises GateError: when that cannot be reached.
        """
        limits = bounds or Bounds()

        def passes(encoder: Encode) -> list[Fall]:
            assert isinstance(encoder, Opened)
            falls = fallen(before, graded_scores(encoder, languages), points)
            beyond = [] if falls else beyond_bounds(encoder.session, reference, limits)
            return falls or [Fall(what, 100 * bound, 100 * figure) for what, bound, figure in beyond]

        trade = search(self._build, self.levels(), passes, int8_bytes(sites(self.prepared.student)), *self._sample())
        for line in trade_text(trade):
            console.say(line)
        return trade

    def _build(self, levels: Mapping[str, str]) -> Encode:
        return self.at(levels).open()

    def _sample(self) -> tuple[list[str], Vectors]:
        texts = spread(in_turn(packaged_text()), SAMPLE)
        return texts, encode(self.prepared.student, self.prepared.tokenizer, texts)
