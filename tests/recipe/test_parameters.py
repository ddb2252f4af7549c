import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from tests.helpers.foreign import save_encoder
from tests.helpers.rotary import CONFIGS as ROTARY
from tests.helpers.rotary import save_rotary
from tests.helpers.student import save_student
from xcompress.distillation.shape import student_config
from xcompress.errors import InputError
from xcompress.modeling.load import import_encoder
from xcompress.modeling.student import Student, StudentConfig, read_config
from xcompress.recipe import load_recipe
from xcompress.recipe.encoders import EncoderSection, EncoderShape
from xcompress.recipe.parameters import Counts, count_encoder, count_parameters, shape_of, teacher_width
from xcompress.recipe.text import counts_json, recipe_text

XLMR = "paper/xlmr_b128_ru3"
SHAPE = EncoderShape(vocabulary=97, hidden=24, layers=6, heads=4, intermediate=56, positions=33, types=3)
PAPER = {
    "xlmr_b128_ru3": ("32.49", "21.26"),
    "xlmr_b256_ru3": ("64.59", "21.26"),
    "xlmr_bnone_ru3": ("192.40", "21.26"),
    "xlmr_b128_ru6": ("32.49", "42.52"),
    "xlmr_b128_ru12": ("32.49", "85.05"),
    "xlmr_xkd": ("192.40", "85.05"),
    "minilm_b128_ru3": ("32.05", "5.32"),
    "minilm_b256_ru3": ("64.10", "5.32"),
    "minilm_bnone_ru3": ("96.21", "5.32"),
    "minilm_b128_ru6": ("32.05", "10.64"),
    "minilm_b128_ru12": ("32.05", "21.29"),
    "minilm_xkd": ("96.21", "21.29"),
}
"""Embedding and encoder sizes printed in tables 1, 2, 7 and 8, in millions."""

FAMILIES = {kind: "gte" if kind == "new" else kind for kind in ROTARY}


def student_of(*overrides: str, recipe: str = XLMR) -> Counts:
    counted = count_parameters(load_recipe(recipe, overrides)).student
    assert counted is not None
    return counted


def printed(value: float) -> set[str]:
    """The paper rounds some sizes and cuts others off."""
    return {f"{value / 1e6:.2f}", f"{int(value / 1e4) / 100:.2f}"}


@pytest.mark.parametrize(("name", "sizes"), PAPER.items())
def test_every_row_of_the_paper_has_the_printed_sizes(name: str, sizes: tuple[str, str]) -> None:
    counts = student_of(recipe=f"paper/{name}")
    left_out = name.startswith("minilm") and counts.projection  # MiniLM's positions count only where b = False
    embedding = counts.word + counts.projection + (0 if left_out else counts.position)
    assert sizes[0] in printed(embedding)
    assert sizes[1] in printed(counts.encoder)


@pytest.mark.parametrize("bottleneck", [None, 8])
@pytest.mark.parametrize("head", [0, 40])
def test_counts_are_those_of_the_student_itself(bottleneck: int | None, head: int) -> None:
    config = StudentConfig(
        vocab_size=97,
        hidden_size=24,
        num_attention_heads=4,
        intermediate_size=56,
        prelude_layers=1,
        unit_layers=2,
        recurrences=3,
        coda_layers=2,
        bottleneck=bottleneck,
        head_size=head or None,
        max_position_embeddings=33,
        type_vocab_size=3,
    )
    with torch.device("meta"):
        sizes = Student(config).sizes()
    counts = count_encoder(SHAPE, layers=2, recurrences=3, around=3, bottleneck=bottleneck, head=head)
    others = ("hidden", "vocabulary", "recurrences", "depth", "applied")
    assert {name: number for name, number in asdict(counts).items() if name not in others and number} == sizes
    assert (counts.hidden, counts.vocabulary) == (config.hidden_size, config.vocab_size)
    assert (counts.depth, counts.applied) == (config.depth, config.depth * sizes["encoder"] // 5)
    assert counts.total == sum(sizes.values())


@pytest.mark.parametrize("prelude", ["[1]", "[]"])
@pytest.mark.parametrize("kind", ["modernbert", *ROTARY])
def test_an_encoder_with_rotary_positions_and_students_of_it_are_counted(
    kind: str, prelude: str, tmp_path: Path
) -> None:
    if kind in ROTARY:
        save_rotary(tmp_path / "model", kind, "mean")
    else:
        save_encoder(tmp_path / "model", kind)
    shape = f"student={{prelude: {prelude}, unit_layers: 1, layers: [3], recurrences: 2, coda: [], bottleneck: 8}}"
    source = f"assistant={{source: {tmp_path / 'model'}, pooling: mean}}"
    recipe = load_recipe(XLMR, [source, shape, "widths=equal", "vocabulary={method: keep}"])
    counted = count_parameters(recipe)
    assert counted.assistant and counted.student
    assistant, tokenizer = import_encoder(tmp_path / "model", pooling="mean")
    assert counted.assistant.total == sum(assistant.sizes().values())
    student = Student(student_config(assistant.config, recipe.student))
    counts = {name: number for name, number in asdict(counted.student).items() if name in student.sizes()}
    assert counts == student.sizes()
    (tmp_path / "student").mkdir()
    student.save(tmp_path / "student", tokenizer)
    kinds = [shape_of(EncoderSection(source=str(tmp_path / name))) for name in ("model", "student")]
    assert kinds[0] and kinds[1] and kinds[1].rotary_bert == kinds[0].rotary_bert == FAMILIES.get(kind)
    assert kinds[1].modernbert == (kind == "modernbert")


def test_the_assistant_is_counted_before_training() -> None:
    assistant = count_parameters(load_recipe(XLMR)).assistant
    assert assistant is not None
    assert (assistant.recurrences, assistant.projection) == (1, 0)
    assert (assistant.word, assistant.encoder) == (250_002 * 768, 4 * student_of().encoder)


@pytest.mark.parametrize(
    ("overrides", "recurrences"),
    [([], 4), (["student.unit_layers=6"], 2), (["student.recurrences=7"], 7), (["student.recurrences=1"], 1)],
)
def test_recurrences(overrides: list[str], recurrences: int) -> None:
    assert student_of(*overrides).recurrences == recurrences


def test_a_trained_vocabulary_has_its_own_size_and_a_trimmed_one_is_unknown() -> None:
    assert student_of("vocabulary.method=train", "vocabulary.size=9000").word == 9000 * 128
    trimmed = count_parameters(load_recipe(XLMR, ["vocabulary.method=trim"]))
    assert trimmed.student is not None and trimmed.student.word == 250_002 * 128
    assert "all 250,002 tokens; how many trimming leaves is known once the text is read" in trimmed.notes[0]


def test_a_trimmed_vocabulary_may_have_a_size() -> None:
    trimmed = count_parameters(load_recipe(XLMR, ["vocabulary.method=trim", "vocabulary.size=30000"]))
    assert trimmed.student is not None and trimmed.student.word == 30_000 * 128
    assert "30,000 tokens; trimming may leave fewer, or a few more" in trimmed.notes[0]


def test_named_layers_are_counted() -> None:
    assert student_of("student.unit_layers=4", "student.layers=[1, 4, 7, 12]").encoder == 4 * student_of().encoder // 3


def test_the_head_is_as_wide_as_the_teacher() -> None:
    shape = "{vocabulary: 9, hidden: 384, layers: 6, heads: 12, intermediate: 9}"
    assert student_of("widths=head", f"teacher.shape={shape}").head == 768 * 384 + 384
    other = f"teacher={{source: one, shape: {shape}, beside: [{{source: another, shape: {shape}}}]}}"
    assert student_of("widths=head", other, "teacher.normalize=true").head == 768 * (2 * 384) + 2 * 384
    assert student_of("widths=head", other, "teacher.normalize=true", "teacher.dimensions=100").head == 768 * 100 + 100
    unknown = count_parameters(load_recipe(XLMR, ["widths=head"]))
    assert unknown.student is not None
    assert unknown.student.head is None
    assert unknown.student.total == student_of().total
    assert "give teacher.shape" in unknown.notes[0]


def test_the_head_is_as_wide_as_a_teacher_that_gives_only_vectors(tmp_path: Path) -> None:
    assert student_of("widths=head", "teacher={source: 'released:small'}").head == 768 * 384 + 384
    np.save(tmp_path / "api.npy", np.zeros((3, 50), dtype=np.float32))
    table = f"teacher={{source: {tmp_path}/api.npy, ensemble: [{{source: 'released:small'}}]}}"
    assert teacher_width(load_recipe(XLMR, ["teacher.normalize=true", table])) == 434


@pytest.mark.parametrize("source", ["python:usem:encode", "absent.npy", "released:huge"])
def test_a_head_of_unknown_width_asks_for_no_shape_where_none_is_allowed(source: str) -> None:
    counted = count_parameters(load_recipe(XLMR, ["widths=head", f"teacher={{source: '{source}'}}"]))
    assert counted.student is not None and counted.student.head is None
    assert counted.notes[0] == "head: its width is the teacher's, known once teacher has given a vector"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no table",
        b"\x93NUMPY\x01\x00v\x00{'descr': '<f4'",
        b"\x93NUMPY\x01\x00\x0f\x00{'descr': '<f4'",
        b"\x93NUMPY\x09\x00",
    ],
)
def test_a_damaged_table_of_vectors_has_no_width(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "api.npy").write_bytes(content)
    assert teacher_width(load_recipe(XLMR, [f"teacher={{source: {tmp_path}/api.npy}}"])) is None


def test_layers_and_rows_may_come_from_other_encoders() -> None:
    shape = "{vocabulary: 500, hidden: 64, layers: 4, heads: 4, intermediate: 128}"
    rows = shape.replace("500", "900")
    overrides = [
        "assistant.source=python:usem:encode",
        f"assistant.layers_from={{source: a, shape: {shape}}}",
        f"assistant.embeddings_from={{source: b, shape: {rows}}}",
        "student={unit_layers: 2, bottleneck: 16}",
        "stages.assistant=null",
    ]
    counted = count_parameters(load_recipe(XLMR, overrides))
    assert counted.assistant is None
    assert counted.student is not None
    assert (counted.student.word, counted.student.recurrences) == (900 * 16, 2)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("student.layers=[1, 2, 13]", "student.layers: there is no layer 13, the assistant has 12; choose others"),
        ("student={prelude: [10], recurrences: 1}", "student.layers: there is no layer 13, the assistant has 12"),
        ("student={coda: [20], recurrences: 1}", "student.coda: there is no layer 20, the assistant has 12; choose"),
        ("student.unit_layers=5", "unit_layers: 5 does not divide the assistant's 12 layers; choose 1, 2, 3, 4, 6, 12"),
        ("student={unit_layers: 13, recurrences: 1}", "13 is more than the assistant's 12 layers"),
        ("student.bottleneck=768", "bottleneck: 768 is not smaller than the assistant's width 768"),
    ],
)
def test_impossible_shapes_are_refused(override: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        count_parameters(load_recipe(XLMR, [override]))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("student.heads=7", "student.heads: 7 do not divide the width, student.hidden: 512; correct one"),
        ("student.bottleneck=512", "student.bottleneck: 512 is not smaller than student.hidden, 512; choose a smaller"),
    ],
)
def test_impossible_shapes_of_a_student_from_scratch_are_refused(override: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        count_parameters(load_recipe("lightweight_dual", [override]))


def test_the_head_of_a_student_from_scratch_may_be_of_unknown_width_too() -> None:
    counted = count_parameters(load_recipe("lightweight_dual", ["teacher={source: org/model}"]))
    assert counted.student and counted.student.head is None and counted.student.token_type == 0
    assert counted.notes == ("head: its width is the teacher's, unknown until that is fetched; give teacher.shape",)


def test_a_local_folder_says_its_shape_and_a_hub_id_does_not(tmp_path: Path) -> None:
    config = {
        "vocab_size": 97,
        "hidden_size": 24,
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "intermediate_size": 56,
        "max_position_embeddings": 33,
        "type_vocab_size": 3,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert shape_of(EncoderSection(source=str(tmp_path))) == SHAPE
    assert shape_of(EncoderSection(source="org/model")) is None
    (tmp_path / "config.json").write_text('{"model_type": "xcompress-student", "vocab_size": 97}')
    assert shape_of(EncoderSection(source=str(tmp_path))) is None


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"prelude_layers": 1, "coda_layers": 2, "bottleneck": None, "head_size": None},
        {"type_vocab_size": 0, "position_offset": 0},
    ],
)
def test_a_local_student_is_counted_as_assistant_and_as_teacher(changes: dict[str, object], tmp_path: Path) -> None:
    source = save_student(tmp_path / "student", **changes)
    config = read_config(source)
    recipe = load_recipe(
        XLMR,
        [
            f"assistant={{source: {source}, shape: null, sha256: null, tokenizer: null}}",
            f"teacher={{source: {source}, shape: null}}",
            "student={unit_layers: 1, bottleneck: 8}",
            "widths=equal",
        ],
    )
    counted = count_parameters(recipe)
    for counts, student in (
        (counted.assistant, Student(config)),
        (counted.student, Student(student_config(config, recipe.student))),
    ):
        assert counts is not None
        assert counts.total == sum(student.sizes().values())
        assert (counts.depth, counts.recurrences) == (student.config.depth, student.config.recurrences)
    assert teacher_width(recipe) == config.dimension
    with_head = count_parameters(recipe.model_copy(update={"widths": "head"}))
    assert with_head.student is not None and with_head.student.head == (config.hidden_size + 1) * config.dimension


def test_unknown_counts_say_what_to_give() -> None:
    counted = count_parameters(load_recipe(XLMR, ["assistant.shape=null"]))
    assert (counted.assistant, counted.student) == (None, None)
    assert "unknown until the model is opened; give assistant.shape" in counted.notes[0]
    assert "student     unknown" in recipe_text(load_recipe(XLMR, ["assistant.shape=null"]), counted)
    assert counts_json(counted)["student"] is None


def test_a_shown_recipe_can_be_loaded_again(tmp_path: Path) -> None:
    recipe = load_recipe("paper/xlmr_ce", ["student.bottleneck=96"])
    path = tmp_path / "shown.yaml"
    path.write_text(recipe_text(recipe, count_parameters(recipe)), encoding="utf-8")
    assert load_recipe(path) == recipe
    assert "student     4     24.47M   21.26M" in path.read_text(encoding="utf-8")


def test_counts_as_json_add_up() -> None:
    student = counts_json(count_parameters(load_recipe(XLMR)))["student"]
    assert student["total"] == student["embedding"] + student["encoder"]
    assert student["fp32_megabytes"] == pytest.approx(student["total"] * 4 / 1e6)
    assert student["int8_megabytes"] == pytest.approx(student["total"] / 1e6)
    assert yaml.safe_load(json.dumps(student)) == student
