from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.helpers.student import GATED_BERT, GEMMA, QWEN, ROTARY_BERT, SENTENCES, make_student, make_tokenizer
from tests.helpers.vocabularies import make, write_word_lists
from xcompress.errors import InputError
from xcompress.export.config import ExportConfig
from xcompress.export.prepare import SENTENCES_PER_AXIS, Prepared, center, prepare, reduce_dimension, shift_before_head
from xcompress.export.text import real_sentences
from xcompress.metrics import cosine_matrix, cosines
from xcompress.modeling import centering
from xcompress.modeling.centering import centering_map
from xcompress.modeling.pca import principal_axes
from xcompress.modeling.student import Student, encode, reconfigured
from xcompress.vocab.count import count_file

WORDS = {"de": ["der", "Zug", "kommt", "heute", "nicht"], "en": ["rain", "the", "boat", "is", "late"]}


@pytest.fixture(autouse=True)
def word_lists(empty_cache: Path, no_installed_wheels: None) -> None:
    write_word_lists(empty_cache, WORDS)


def student(**changes: object) -> Student:
    return make_student(vocab_size=make("unigram").get_vocab_size(), **changes)


def prepared(
    options: ExportConfig,
    given: Student | None = None,
    sentences: Sequence[str] = SENTENCES,
    prompts: Sequence[str] = (),
) -> Prepared:
    tokenizer = make("unigram")
    counts = [count_file(tokenizer, path) for path in options.text if options.vocabulary]
    return prepare(given or student(), tokenizer, options, lambda: sentences, prompts, counts)


def test_without_options_nothing_changes_and_no_text_is_read() -> None:
    given, tokenizer = student(), make("unigram")

    def sentences() -> list[str]:
        raise AssertionError

    found = prepare(given, tokenizer, ExportConfig(), sentences)
    assert found.student is given
    assert found.tokenizer is tokenizer
    assert found.changes == {}


@pytest.mark.parametrize("target", ["executorch", "litert", "coreml"])
def test_what_a_file_for_phones_lacks_is_refused(target: str) -> None:
    lacking = {"layers of Gemma": GEMMA, "layers of Qwen3": QWEN, "lasttoken pooling": {"pooling": "lasttoken"}}
    lacking |= {"layers of BERT with rotary positions": ROTARY_BERT}
    for name, changes in lacking.items():
        with pytest.raises(InputError, match=f"^target: {target} has no {name}, as this model has"):
            prepared(ExportConfig(target=target), student(**changes))  # type: ignore[arg-type]


def test_a_limit_of_tokens_whose_attention_fits_no_memory_is_refused() -> None:
    given = student(max_tokens=32_768, max_position_embeddings=33_000)
    with pytest.raises(InputError, match=r"^max_tokens: .* of 32,768 tokens takes 17 GB; cut texts at 23170 tokens or"):
        prepared(ExportConfig(), given)
    assert prepared(ExportConfig(max_tokens=512), given).student.config.max_tokens == 512


def test_recurrences_can_be_reduced() -> None:
    found = prepared(ExportConfig(recurrences=1))
    assert found.student.config.recurrences == 1
    with pytest.raises(InputError, match="recurrences: 4 requested"):
        prepared(ExportConfig(recurrences=4))


def test_positions_behind_the_longest_text_are_left_out_and_vectors_stay() -> None:
    whole, found = student(), prepared(ExportConfig(max_tokens=16))
    assert found.student.embeddings.position.weight.shape[0] == whole.config.position_offset + 16
    assert found.student.config.max_tokens == 16
    assert found.changes == {"truncated": {"before": 128}}
    assert prepared(ExportConfig(max_tokens=128)).changes == {}
    texts = ["der Zug kommt", "rain"]
    np.testing.assert_array_equal(encode(found.student, make("unigram"), texts), encode(whole, make("unigram"), texts))
    for impossible in (2, 129):
        with pytest.raises(InputError, match=f"max_tokens: {impossible} requested, .* choose 3 to 128"):
            prepared(ExportConfig(max_tokens=impossible))


def test_a_longest_text_that_the_prefix_fills_is_refused() -> None:
    """Each text would be cut to the same tokens, and every later figure be NaN."""
    taken = len(make("unigram").encode("query:").ids)
    message = rf"max_tokens: {taken}, but the prefix and the special tokens take {taken}, .* at least {taken + 1}, or"
    with pytest.raises(InputError, match=message):
        prepared(ExportConfig(max_tokens=taken))
    found = prepared(ExportConfig(max_tokens=taken + 1))
    first, second = encode(found.student, found.tokenizer, ["der Zug kommt", "rain"])
    assert np.abs(first - second).max() > 1e-3


def test_padding_takes_no_room_of_the_longest_text() -> None:
    """The tokenizer.json of all-MiniLM-L6-v2 pads each text to 128 tokens."""
    tokenizer = make("unigram")
    tokenizer.enable_padding(length=128)
    found = prepare(student(), tokenizer, ExportConfig(max_tokens=64), list)
    assert found.student.config.max_tokens == 64
    assert prepared(ExportConfig(max_tokens=3), student(prefix="")).student.config.max_tokens == 3


def test_a_vocabulary_for_languages_gives_the_same_vectors_of_their_words() -> None:
    whole = student()
    found = prepared(ExportConfig(languages=("de", "en")))
    assert found.student.config.vocab_size == found.tokenizer.get_vocab_size() < 900
    texts = ["der Zug kommt heute nicht", "the boat is late"]
    np.testing.assert_allclose(
        encode(found.student, found.tokenizer, texts), encode(whole, make("unigram"), texts), atol=1e-5
    )
    assert found.changes["vocabulary"]["pieces_before"] == 900
    assert found.changes["vocabulary"]["pieces_after"] == found.student.config.vocab_size
    assert found.changes["vocabulary"]["counted"] == ("de", "en")


@pytest.mark.parametrize("kind", ["prefix", "prompt"])
def test_the_pieces_of_the_prefix_the_prompts_and_the_padding_stay(kind: str) -> None:
    text = "chopping seaplane: "
    options = ExportConfig(languages=("en",), vocabulary=1)
    if kind == "prefix":
        found = prepared(options, student(prefix=text))
    else:
        found = prepared(options, student(), prompts=["", text])
    pieces = [tokenizer.encode(text).tokens for tokenizer in (make("unigram"), found.tokenizer)]
    assert pieces[0] == pieces[1]
    assert found.tokenizer.id_to_token(found.student.config.pad_token_id) == "<pad>"


def test_a_vocabulary_of_a_size_for_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("\n".join(SENTENCES * 9), encoding="utf-8")
    text = (tmp_path / "mine.txt",)
    few, more = (prepared(ExportConfig(vocabulary=size, text=text)).student.config.vocab_size for size in (10, 40))
    assert few < more < 900


def test_text_alone_trims_nothing(tmp_path: Path) -> None:
    assert prepared(ExportConfig(text=(tmp_path / "mine.txt",))).changes == {}


def test_a_language_without_words_is_refused() -> None:
    with pytest.raises(InputError, match="no word frequencies for 'xx', only for ar"):
        prepared(ExportConfig(languages=("xx",)))


def test_shorter_vectors_and_what_is_said_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    found = prepared(ExportConfig(dimension=3, shorten="slice"))
    change = found.changes["shortened"]
    assert (change["before"], change["by"], found.student.config.dimension) == (24, "slice", 3)
    assert 0 < change["kept"] < 1
    assert (
        f"vectors: 24 to 3 dimensions, {100 * change['kept']:.1f} % of their squared lengths kept"
        in capsys.readouterr().err
    )


def test_all_options_at_once_reduce_the_vectors_of_the_trimmed_student() -> None:
    found = prepared(ExportConfig(recurrences=2, languages=("en",), dimension=2))
    config = found.student.config
    assert (config.recurrences, config.dimension) == (2, 2)
    assert config.vocab_size < 900
    assert set(found.changes) == {"vocabulary", "shortened"}
    first = prepared(ExportConfig(recurrences=2, languages=("en",)))
    before = encode(first.student, first.tokenizer, SENTENCES)
    axes = np.linalg.svd(before)[2][:2]
    expected = before @ axes.T / np.linalg.norm(before @ axes.T, axis=1, keepdims=True)
    np.testing.assert_allclose(np.abs(encode(found.student, found.tokenizer, SENTENCES)), np.abs(expected), atol=1e-4)


TEXTS = real_sentences()[:48]
FORMS: list[dict[str, object]] = [
    {},
    {"head_size": None, "normalize": False},
    {"pooling": "cls", "recurrences": 1},
]


@pytest.mark.parametrize("sliced", [False, True])
@pytest.mark.parametrize("changes", FORMS)
def test_vectors_are_the_old_ones_on_the_axes_at_unit_length(changes: dict[str, object], sliced: bool) -> None:
    student, tokenizer = make_student(**changes), make_tokenizer()
    before = encode(student, tokenizer, TEXTS)
    small, kept = reduce_dimension(student, tokenizer, TEXTS, 6, sliced=sliced)
    axes = np.eye(before.shape[1])[:6] if sliced else principal_axes(before, 6, fix_signs=False)
    expected = before @ axes.T
    assert kept == pytest.approx(np.square(expected).sum() / np.square(before).sum(), rel=1e-4)
    if student.config.normalize:
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(encode(small, tokenizer, TEXTS), expected, atol=1e-5)
    assert (small.config.dimension, small.config.head_size, small.training) == (6, 6, False)
    assert encode(student, tokenizer, TEXTS[:1]).shape[1] == before.shape[1]


def test_axes_keep_more_than_the_first_numbers() -> None:
    student, tokenizer = make_student(), make_tokenizer()
    by_axes, by_place = (reduce_dimension(student, tokenizer, TEXTS, 4, sliced=sliced)[1] for sliced in (False, True))
    assert 1 > by_axes > by_place + 0.05


@pytest.mark.parametrize("dimension", [24, 25, 1000])
def test_vectors_can_only_become_shorter(dimension: int) -> None:
    with pytest.raises(InputError, match=f"dimension: {dimension} requested, but the vectors have 24; choose fewer"):
        reduce_dimension(make_student(), make_tokenizer(), TEXTS, dimension, sliced=False)


def test_an_activated_head_cannot_be_shortened() -> None:
    with pytest.raises(InputError, match="the vectors pass tanh and cannot be shortened; leave the option out"):
        reduce_dimension(make_student(head_activation="tanh"), make_tokenizer(), TEXTS, 8, sliced=True)


def test_few_sentences_for_many_axes_are_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    student, tokenizer = make_student(), make_tokenizer()
    reduce_dimension(student, tokenizer, TEXTS[: 4 * SENTENCES_PER_AXIS], 4, sliced=False)
    reduce_dimension(student, tokenizer, SENTENCES, 4, sliced=True)
    assert "warning" not in capsys.readouterr().err
    reduce_dimension(student, tokenizer, TEXTS[: 4 * SENTENCES_PER_AXIS - 1], 4, sliced=False)
    assert "15 sentences for 4 axes; give more with --text" in capsys.readouterr().err


@pytest.mark.parametrize(
    "changes",
    [
        *FORMS,
        {"head_size": None},
        {"head_size": None, "recurrences": 1},
        {"head_size": None, "coda_layers": 1},
        {"normalize": False},
    ],
)
def test_centred_vectors_are_the_old_ones_times_the_centering_map(
    changes: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    maps = []

    def map_once(vectors: np.ndarray) -> np.ndarray:
        """Keep the map: of vectors that differ in the last digit it differs by far more."""
        maps.append(centering_map(vectors))
        return maps[0]

    monkeypatch.setattr("xcompress.export.prepare.centering_map", map_once)
    monkeypatch.setattr(centering, "STEPS", 20)  # any map will do
    student, tokenizer = make_student(**changes), make_tokenizer()
    plain = encode(make_student(**changes | {"normalize": False}), tokenizer, TEXTS)
    centred, measured = center(student, tokenizer, TEXTS)
    mapped = plain @ maps[0].T
    expected = mapped / np.linalg.norm(mapped, axis=1, keepdims=True) if student.config.normalize else mapped
    np.testing.assert_allclose(encode(centred, tokenizer, TEXTS), expected, atol=1e-5)
    for name, vectors in (("before", plain), ("after", mapped)):
        table = cosine_matrix(vectors, vectors)
        assert measured[name] == pytest.approx(table[~np.eye(len(table), dtype=bool)].mean(), abs=1e-5)
    assert abs(measured["after"]) < 0.1 < measured["before"]


def test_the_manifest_says_how_far_centring_moved_the_cosines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(centering, "STEPS", 20)  # any map will do
    found = prepared(ExportConfig(center=True), sentences=TEXTS)
    before, after = found.changes["centered"].values()
    assert f"mean cosine of two different sentences was {before:.2f} and is {after:.2f}" in capsys.readouterr().err
    plain = prepared(ExportConfig()).student
    assert found.student.sizes() == plain.sizes(), "the student's head is multiplied"


def rounded(student: Student) -> Student:
    """Return a student whose head has one scale per row and 8 bits."""
    weight = student.head.weight.detach()  # type: ignore[union-attr]
    scale = weight.abs().amax(1, keepdim=True) / 127
    return reconfigured(student, student.config, {"head.weight": torch.round(weight / scale) * scale})


@pytest.mark.parametrize("changes", [{}, GATED_BERT])
def test_the_head_of_centred_vectors_can_be_rounded(
    changes: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rounded head left a part of a large share that all outputs have: multilingual-e5-small had a cosine of 0.74."""
    monkeypatch.setattr(centering, "STEPS", 20)
    given, tokenizer = student(**changes, recurrences=1), make("unigram")
    with torch.no_grad():
        given.get_parameter("unit.1.output_norm.bias").add_(30 * torch.sin(torch.arange(32.0)))
    centred, _ = center(given, tokenizer, TEXTS)
    shifted = prepared(ExportConfig(center=True), given, TEXTS).student
    expected = encode(centred, tokenizer, TEXTS)
    assert cosines(encode(rounded(centred), tokenizer, TEXTS), expected).mean() < 0.9
    assert cosines(encode(shifted, tokenizer, TEXTS), expected).min() > 0.9999
    assert cosines(encode(rounded(shifted), tokenizer, TEXTS), expected).min() > 0.99


def test_a_head_of_centring_alone_is_not_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(centering, "STEPS", 20)
    bare = student(head_size=None)
    assert prepared(ExportConfig(center=True), bare, TEXTS).levels == {"head": "fp32"}
    assert prepared(ExportConfig(center=True, dimension=16), bare, TEXTS).levels == {"head": "fp32"}
    assert prepared(ExportConfig(dimension=16), bare, TEXTS).levels == {}
    assert prepared(ExportConfig(center=True), sentences=TEXTS).levels == {}, "a student's own head"


def test_a_norm_that_is_applied_again_adds_what_it_did() -> None:
    given = student(recurrences=2)
    assert shift_before_head(given, make("unigram"), TEXTS) is given


def test_centring_needs_sentences_and_a_linear_head() -> None:
    with pytest.raises(InputError, match="the vectors pass tanh and cannot be centred; leave the option out"):
        center(make_student(head_activation="tanh"), make_tokenizer(), TEXTS)
    with pytest.raises(InputError, match="needs 2 sentences or more, not 1; give more with --text"):
        center(make_student(), make_tokenizer(), TEXTS[:1])
