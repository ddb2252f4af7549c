import numpy as np
import pytest
import torch

from tests.helpers.export import TEXT
from tests.helpers.student import SENTENCES, make_student, make_tokenizer
from xcompress.export import calibrate as module
from xcompress.export.calibrate import calibrate
from xcompress.export.matmul import Range, matmuls
from xcompress.export.verify import most_rows
from xcompress.modeling.student import Student, token_ids

TEXTS = [*SENTENCES, *TEXT["de"]]
SHORT = [*dict.fromkeys(text.split()[0] for text in TEXTS), ""]


def by_hand(student: Student, texts: list[str]) -> dict[str, Range]:
    """Encode one text after the other, without padding, and remember every input of every product."""
    seen: dict[str, list[torch.Tensor]] = {name: [] for name in matmuls(student)}
    modules = dict(student.named_modules())
    for name, inputs in seen.items():
        modules[name].register_forward_pre_hook(
            lambda _, given, inputs=inputs: inputs.append(given[0].reshape(-1, given[0].shape[-1]))
        )
    with torch.inference_mode():
        bare = [make_tokenizer().encode(word, add_special_tokens=False).ids[:1] for word in SHORT]
        for ids in [*token_ids(make_tokenizer(), [*texts, *SHORT], student.config), *filter(None, bare)]:
            student(torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.int64))
    whole = {name: torch.cat(inputs).numpy() for name, inputs in seen.items()}
    return {name: Range(inputs.min(0), inputs.max(0), inputs.T @ inputs) for name, inputs in whole.items()}


@pytest.mark.parametrize("size", [1, 3, 16])
@pytest.mark.parametrize("changes", [{}, {"head_activation": "tanh", "bottleneck": None}, {"relative_buckets": 8}])
def test_ranges_are_those_of_every_token_and_recurrence_without_padding(
    changes: dict[str, object], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", size)
    found = calibrate(make_student(**changes), make_tokenizer(), TEXTS)
    expected = by_hand(make_student(**changes), TEXTS)
    assert list(found) == list(matmuls(make_student(**changes)))
    for name, seen in expected.items():
        np.testing.assert_allclose(found[name].low, seen.low, atol=1e-5)
        np.testing.assert_allclose(found[name].high, seen.high, atol=1e-5)
        assert found[name].low.shape == (len(matmuls(make_student(**changes))[name].weight),)
        assert found[name].low.dtype == np.float32
        assert found[name].moments is None


@pytest.mark.parametrize("changes", [{}, {"head_activation": "tanh", "bottleneck": None}])
def test_moments_are_sums_over_every_token_and_recurrence_without_padding(changes: dict[str, object]) -> None:
    found = calibrate(make_student(**changes), make_tokenizer(), TEXTS, moments=True)
    for name, seen in by_hand(make_student(**changes), TEXTS).items():
        assert seen.moments is not None
        np.testing.assert_allclose(found[name].moments, seen.moments, atol=1e-4 * np.abs(seen.moments).max())


def test_batches_of_long_texts_are_small() -> None:
    student, text = make_student(max_position_embeddings=1026, max_tokens=1024), " ".join(TEXTS * 100)
    assert len(token_ids(make_tokenizer(), [text], student.config)[0]) == 1024
    shapes: list[torch.Size] = []
    student.register_forward_pre_hook(lambda _, given: shapes.append(given[0].shape))
    calibrate(student, make_tokenizer(), [text] * 20)
    assert max(rows for rows, tokens in shapes if tokens == 1024) == most_rows(1024) < module.BATCH


def test_later_recurrences_count() -> None:
    once, thrice = (calibrate(make_student(recurrences=count), make_tokenizer(), TEXTS) for count in (1, 3))
    assert (thrice["unit.0.attention"].high > once["unit.0.attention"].high + 1e-3).any()
    assert (thrice["unit.0.attention"].high >= once["unit.0.attention"].high - 1e-5).all()


def test_gelu_never_gives_less_than_its_site_says() -> None:
    student = make_student()
    found = calibrate(student, make_tokenizer(), TEXTS)
    for name, site in matmuls(student).items():
        assert (site.least is not None) == name.endswith(".output")
        assert site.least is None or found[name].low.min() >= site.least


def test_the_student_is_left_without_hooks_even_when_it_fails() -> None:
    student = make_student()
    calibrate(student, make_tokenizer(), TEXTS)
    student.unit[1].forward = None  # type: ignore[assignment]
    with pytest.raises(TypeError):
        calibrate(student, make_tokenizer(), TEXTS)
    assert not [name for name, part in student.named_modules() if part._forward_pre_hooks]
