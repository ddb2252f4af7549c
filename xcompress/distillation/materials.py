"""What all stages draw on: the corpus, the pairs each stage sees, and the vectors that are learned."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from xcompress import __version__
from xcompress.console import say, tracked
from xcompress.corpus.build import HOLDOUT, TRAIN, build, corpus_file, origins_file
from xcompress.corpus.filters import Limits, TokenLimit
from xcompress.corpus.graded import GradedSet, read_folder
from xcompress.corpus.pairs import Pair
from xcompress.corpus.sequences import ConcatSequence
from xcompress.corpus.store import PairFile
from xcompress.distillation.data.batches import draw
from xcompress.distillation.data.labelled import Labelled
from xcompress.distillation.data.targets import Change, Rows, Sentences, Side, VectorTable, unchanged
from xcompress.distillation.initialization import least_squares_head, principal_axes
from xcompress.distillation.losses.stage import pair_kinds
from xcompress.distillation.run_folder import Run, Step
from xcompress.distillation.teachers.encoder import encoder_fingerprint, open_encoder, unit_length
from xcompress.distillation.teachers.ensemble import stored_vectors, teacher_fingerprint
from xcompress.distillation.teachers.vectors import Vectors, VectorStore
from xcompress.errors import InputError
from xcompress.recipe import CorpusSection, Recipe, Stage, TeacherSection, TsvFile
from xcompress.recipe.lineage import runs_before, trained_on
from xcompress.sources import fingerprint, resolve
from xcompress.sources.python_code import PYTHON

FITTED_ON = 5000
"""Pairs whose English sentences the head, or the principal axes, are fitted on: the same whatever the stages are."""
SIDES: tuple[Side, Side] = ("source", "target")


class Materials:
    """The corpus step and, from it, pairs and vectors; nothing is read or computed before it is asked for."""

    def __init__(self, recipe: Recipe, run: Run, width: int, reference: Step | None) -> None:
        """Run the corpus step.

        :param width: H of the student.
        :param reference: the step with the encoder that lends the layers, if any.
        """
        self.recipe = recipe
        self.width = width
        self.store = VectorStore(run.vectors)
        self.corpus = _corpus_step(recipe, run, reference)
        self.labelled = Labelled()
        """What the run reads once the start is there."""

    @cached_property
    def train(self) -> Sequence[Pair]:
        """Pairs to train on, one language after the other."""
        return ConcatSequence(self._by_language)

    @cached_property
    def holdout(self) -> list[Pair]:
        """Pairs held out."""
        return [pair for file in self._files(HOLDOUT) for pair in file]

    @cached_property
    def unseen(self) -> list[Pair]:
        """Of the pairs held out, those that no earlier run trained on whose student lends its layers."""
        earlier = runs_before(self.recipe)
        seen = trained_on({text for pair in self.holdout for text in (pair.source, pair.target)}, earlier)
        unseen = [pair for pair in self.holdout if seen.isdisjoint((pair.source, pair.target))]
        if seen:
            say(
                f"{len(self.holdout) - len(unseen):,} of {len(self.holdout):,} held-out pairs are not scored, as "
                f"{', '.join(map(str, earlier))} trained on one of their sentences"
            )
        return unseen

    @cached_property
    def stages(self) -> Mapping[str, Stage]:
        """The stages by name, with epochs turned into steps."""
        pairs = {name: self._pairs_of(stage) for name, stage in self.recipe.stages.items()}
        return {
            name: stage.model_copy(update={"steps": stage.steps_on(pairs[name]), "epochs": None})
            for name, stage in self.recipe.stages.items()
        }

    @cached_property
    def drawn(self) -> Mapping[str, Rows]:
        """The rows of `train` that each stage sees, by its name."""
        return {
            name: draw(self._readable(stage), stage.steps_on(0) * stage.batch_size, self.recipe.seed_of(name))
            for name, stage in self.stages.items()
            if "translations" in pair_kinds(stage)
        }

    def drawn_labelled(self, stage: str, kind: str) -> Rows:
        """Return the rows of the labelled pairs of a kind that a stage sees, as many as it sees translations."""
        whole, step = self.labelled.kinds[kind], self.stages[stage]
        return draw([np.arange(len(whole.pairs))], step.steps_on(0) * step.batch_size, self.recipe.seed_of(stage))

    def sentences(self, stage: str, side: Side) -> Sentences:
        """Return one side of the pairs that a stage sees."""
        return Sentences(self.train, side, self.drawn[stage])

    @cached_property
    def fitted_on(self) -> list[str]:
        """English training sentences that the head or the principal axes are fitted on."""
        return sorted({pair.source for pair in self.fitted_pairs})

    @cached_property
    def fitted_pairs(self) -> list[Pair]:
        """The pairs that these sentences are from."""
        rows = draw(self._of_languages(), FITTED_ON, self.recipe.seed)
        return [self.train[row] for row in rows]

    @cached_property
    def graded(self) -> GradedSet | None:
        """STS sets for dev scores, in the recipe's languages; None where the recipe names none."""
        dev = self.recipe.dev
        if dev.sts is None:
            return None
        return read_folder(resolve(dev.sts)).within(["en", *self.recipe.languages]).every(dev.every)

    @cached_property
    def teacher_key(self) -> str | None:
        """A hash of the teacher and of how its vectors are used; None without one."""
        return teacher_fingerprint(self.recipe.teacher) if self.recipe.teacher else None

    @cached_property
    def taught(self) -> VectorTable:
        """The teacher's vectors of the English sentences of `holdout`, `fitted_on` and each stage that needs them."""
        groups: dict[str, Sequence[str]] = {"holdout": Sentences(self.holdout, "source"), "fitted_on": self.fitted_on}
        groups |= self._taught_of("source")
        teacher = self.required_teacher
        table = VectorTable(groups, stored_vectors(teacher, self.store))
        if teacher.dimensions:
            table.change = self._reduced(table, teacher.dimensions, teacher.normalize, "teacher.dimensions")
        else:
            table.change = self._fitting(table, normalize=teacher.normalize)
        return table

    @cached_property
    def taught_targets(self) -> VectorTable:
        """The teacher's vectors of the targets of each stage that needs them, changed as those of the sources are."""
        table = VectorTable(self._taught_of("target"), stored_vectors(self.required_teacher, self.store))
        table.change = self.taught.change
        return table

    def _taught_of(self, side: Side) -> dict[str, Sequence[str]]:
        """Return one side of the stages that learn the teacher's vectors of it, by their names."""
        return {name: self.sentences(name, side) for name, stage in self.stages.items() if side in stage.teacher_sides}

    @property
    def required_teacher(self) -> TeacherSection:
        """The teacher, where something learns from it: the recipe's own checks made sure that there is one."""
        assert self.recipe.teacher is not None
        return self.recipe.teacher

    @cached_property
    def teacher(self) -> Callable[[Sequence[str]], NDArray[np.float32]]:
        """Maps English sentences of `holdout` or `fitted_on` to the teacher's vectors, (N, D)."""
        return self.taught.by_text("holdout", "fitted_on")

    @cached_property
    def advised(self) -> VectorTable:
        """Of an assistant that gives only vectors: those of `fitted_on` and of both sides of stages that need them.

        With `widths: head` they are mapped to the teacher's space: x W + b by least squares on `fitted_on`.
        """
        part = self.recipe.assistant
        assert part is not None  # the recipe's checks made sure of it
        groups: dict[str, Sequence[str]] = {"fitted_on": self.fitted_on}
        if part.source.startswith(PYTHON):
            texts = [text for pair in self.holdout for text in (pair.source, pair.target)]
            groups["scored"] = [*texts, *(self.graded.sentences() if self.graded else [])]
        for name, stage in self.stages.items():
            if "assistant" in stage.objectives:
                groups |= {f"{name} {side}": self.sentences(name, side) for side in SIDES}

        def vectors(texts: Sequence[str]) -> Vectors:
            opened = partial(open_encoder, part, "assistant")
            return self.store.vectors("assistant", encoder_fingerprint(part), texts, opened)

        table = VectorTable(groups, vectors)
        if self.recipe.widths == "head" and self.recipe.teacher:
            head = least_squares_head(table.by_text("fitted_on")(self.fitted_on), self.teacher(self.fitted_on))
            weight, bias = head.weight.detach().numpy(), head.bias.detach().numpy()
            table.change = lambda vectors: vectors @ weight.T + bias
        else:
            table.change = self._fitting(table, normalize=self.recipe.normalizes)
        return table

    def _fitting(self, table: VectorTable, normalize: bool) -> Change:
        """Return what makes vectors as wide as the assistant's, where the recipe asks for that.

        :raises InputError: when the widths differ and the recipe says that they are equal.
        """
        _, width = table.vectors.shape
        if self.recipe.widths == "equal" and width != self.width:
            raise InputError(
                f"widths: equal, but the vectors to learn have {width} components and the encoder {self.width}; "
                "use head or pca"
            )
        if self.recipe.widths != "pca":
            return unchanged
        return self._reduced(table, self.width, normalize, "widths: pca")

    def _reduced(self, table: VectorTable, width: int, normalize: bool, key: str) -> Change:
        if table.vectors.shape[1] == width:
            return unchanged
        axes = principal_axes(table.by_text("fitted_on")(self.fitted_on), width, key)
        return lambda vectors: unit_length(vectors @ axes.T) if normalize else vectors @ axes.T

    def _pairs_of(self, stage: Stage) -> int:
        """Count what one epoch of a stage is: its translations, or its labelled pairs where it reads no others."""
        feeds = pair_kinds(stage)
        if "translations" in feeds:
            return sum(map(len, self._readable(stage)))
        return max(len(self.labelled.kinds[kind].pairs) for kind in feeds)

    def _of_languages(self) -> list[Rows]:
        """Return the rows of `train` that each language has."""
        ends = np.cumsum([0, *map(len, self._by_language)])
        return [np.arange(start, end) for start, end in pairwise(ends)]

    def _readable(self, stage: Stage) -> list[Rows]:
        """Return the rows of `train` that a stage may read, by language; languages without any are left out.

        :raises InputError: when there are none at all.
        """
        rows = self._of_languages()
        if stage.text is not None:
            names = self.corpus.facts["origins"]
            wanted = [number for number, name in enumerate(names) if name in stage.text]
            origins = [np.load(origins_file(self.corpus.folder, language)) for language in self.recipe.languages]
            rows = [own[np.isin(of, wanted)] for own, of in zip(rows, origins, strict=True)]
            rows = [own for own in rows if len(own)]
        if not rows:
            raise InputError(f"stages: no training pair comes from {', '.join(stage.text or ())}; name other text")
        return rows

    @cached_property
    def _by_language(self) -> list[PairFile]:
        return list(self._files(TRAIN))

    def _files(self, part: str) -> Iterator[PairFile]:
        for language in self.recipe.languages:
            yield PairFile(corpus_file(self.corpus.folder, part, language), language)


def _corpus_step(recipe: Recipe, run: Run, reference: Step | None) -> Step:
    part = recipe.corpus
    counted_by = reference if part.max_tokens else None
    key = {
        "version": __version__,
        "corpus": part.model_dump(by_alias=True),
        "files": [fingerprint(reference) for reference in (*part.catalogues, *(tsv.source for tsv in part.tsv))],
        "languages": recipe.languages,
        "seed": recipe.seed,
        "tokenizer": counted_by.key if counted_by else None,
    }
    return run.step("corpus", key, lambda folder: _build_corpus(recipe, folder, counted_by), together=False)


def _build_corpus(recipe: Recipe, folder: Path, counted_by: Step | None) -> Mapping[str, object]:
    part = recipe.corpus
    report = build(
        folder,
        [(reference, resolve(reference)) for reference in tracked(part.catalogues, "catalogues: fetched")],
        [(resolve(tsv.source), tsv.language, _origin(tsv)) for tsv in part.tsv],
        recipe.languages,
        limits=_limits(part, counted_by),
        holdout_sentences=part.holdout,
        seed=recipe.seed,
        max_pairs=part.max_pairs,
        most={(tsv.language, _origin(tsv)): tsv.max_pairs for tsv in part.tsv if tsv.max_pairs},
    )
    return asdict(report)


def _origin(tsv: TsvFile) -> str:
    return tsv.name or Path(tsv.source).name


def _limits(part: CorpusSection, counted_by: Step | None) -> Limits:
    tokens = TokenLimit(part.max_tokens, _token_counts(counted_by)) if part.max_tokens and counted_by else None
    return Limits(part.min_words, part.max_words, part.max_ratio, form=part.unicode_form, tokens=tokens)


def _token_counts(reference: Step) -> Callable[[str], int]:
    """Return a function that counts the tokens of a sentence, special ones among them."""
    tokenizer = Tokenizer.from_file(str(reference.folder / "tokenizer.json"))
    tokenizer.no_truncation()
    return lambda text: len(tokenizer.encode(text).ids)
