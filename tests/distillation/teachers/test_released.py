"""A released model as the teacher of a recipe."""

from pathlib import Path

import numpy as np
import pytest

from tests.helpers.recipe import small_recipe
from xcompress import Encoder
from xcompress.distillation.plan import plan
from xcompress.distillation.teachers.encoder import encoder_fingerprint, open_encoder
from xcompress.errors import InputError
from xcompress.recipe import TeacherSection
from xcompress.recipe.validation import problems

TEXTS = ["The last bus leaves at midnight.", "Der letzte Bus fährt um Mitternacht.", ""]


def test_its_vectors_are_those_of_the_encoder() -> None:
    vectors = open_encoder(TeacherSection(source="released:tiny"), "teacher")(TEXTS)
    np.testing.assert_allclose(vectors, Encoder.from_pretrained("tiny").encode(TEXTS), atol=1e-6)


def test_released_models_have_fingerprints_of_their_own() -> None:
    prints = {encoder_fingerprint(TeacherSection(source=f"released:{name}")) for name in ("tiny", "small")}
    assert len(prints) == 2


def test_keys_of_files_do_not_apply() -> None:
    with pytest.raises(InputError, match=r"teacher\.sha256: released:tiny gives only vectors.*remove it"):
        open_encoder(TeacherSection(source="released:tiny", sha256="0" * 64), "teacher")


def test_a_name_that_is_not_released_is_one_line(tmp_path: Path) -> None:
    (line,) = problems(small_recipe(tmp_path, "teacher.source=released:huge"))
    assert line == "teacher.source: huge: no released model of this name; choose small or tiny"


def test_nothing_has_to_be_fetched(tmp_path: Path) -> None:
    sources = plan(small_recipe(tmp_path, "teacher.source=released:tiny"), tmp_path / "run").sources
    assert "released:tiny" not in sources


def test_it_has_no_layers_to_copy(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="released:tiny gives only vectors and has no layers"):
        small_recipe(tmp_path, "assistant.source=released:tiny")
