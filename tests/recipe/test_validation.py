from pathlib import Path

import pytest

from xcompress.errors import InputError
from xcompress.files import write_json
from xcompress.recipe import Recipe, load_recipe
from xcompress.recipe.encoders import CONFIG_KEYS
from xcompress.recipe.validation import check_outside, problems

SIZES = {"vocabulary": 9, "hidden": 4, "layers": 3, "heads": 2, "intermediate": 8, "positions": 512, "types": 2}


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    write_json(tmp_path / "config.json", {CONFIG_KEYS[name]: size for name, size in SIZES.items()})
    return tmp_path


def recipe_with(*overrides: str) -> Recipe:
    return load_recipe("minilm_ru3", overrides)


def test_what_is_no_path_is_not_inside_the_run_folder(working_folder: Path) -> None:
    check_outside(recipe_with(), Path())
    check_outside(recipe_with("teacher={source: 'python:math:sqrt'}"), Path())
    with pytest.raises(InputError, match=r"^teacher\.source: \./model is inside the run folder; choose another --run"):
        check_outside(recipe_with("teacher.source=./model"), Path())


def test_a_shape_is_compared_with_a_local_folder(encoder: Path) -> None:
    source, rest = f"assistant.source={encoder}", ["student.bottleneck=null", "student.coda=[]"]
    assert problems(recipe_with(source, *rest, f"assistant.shape={SIZES}")) == []
    (line,) = problems(recipe_with(source, *rest, f"assistant.shape={SIZES | {'vocabulary': 5}}"))
    assert line.startswith(f"assistant.shape.vocabulary: is 5, but {encoder} has 9; correct one of them")


def test_one_digest_for_a_local_folder_is_refused(encoder: Path) -> None:
    (line,) = problems(recipe_with(f"teacher.source={encoder}", "teacher.sha256=abc"))
    assert line.startswith(f"teacher.sha256: {encoder} is a folder; give the digests of files inside it by name")


@pytest.mark.parametrize(
    ("teacher", "refused"),
    [
        ("source: 'python:math:sqrt', pooling: mean", "pooling: python:math:sqrt gives only vectors"),
        ("source: 'python:math:sqrt', sha256: '0'", "sha256: python:math:sqrt gives only vectors"),
        ("source: 'python:math:sqrt', prefix: 'query: '", None),
        ("source: ./a.npy, prefix: 'query: '", "prefix: ./a.npy gives only vectors"),
        ("source: ./a.npy, sha256: '0', sentences: ./b.txt", None),
        ("source: ./a.npy, tokenizer: {source: ./b.json}", "tokenizer: ./a.npy gives only vectors"),
        ("source: ./model, sentences: ./b.txt", "sentences: ./model is no .npy"),
        ("source: 'released:small', shape: null, sentences: ./b.txt", "sentences: released:small is no .npy"),
    ],
)
def test_a_key_without_effect_is_refused(teacher: str, refused: str | None) -> None:
    lines = problems(recipe_with(f"teacher={{{teacher}}}"), missing=False)
    assert lines == ([f"teacher.{refused}, so this key does not apply; remove it"] if refused else [])


def test_a_folder_without_a_model_and_a_file_for_the_folder_of_sets_are_refused(tmp_path: Path) -> None:
    (tmp_path / "sts.tsv").touch()
    lines = problems(recipe_with(f"teacher.source={tmp_path}", f"dev.sts={tmp_path}/sts.tsv"))
    assert lines == [
        f"teacher.source: {tmp_path} holds neither modules.json nor config.json; name a model's folder",
        f"dev.sts: {tmp_path}/sts.tsv: is a file; name a folder",
    ]


def test_a_text_has_room_for_a_token_between_the_special_ones() -> None:
    with pytest.raises(InputError, match=r"student\.max_tokens: Input should be greater than or equal to 3, got 2"):
        recipe_with("student.max_tokens=2")


def test_a_local_model_that_brings_code_is_refused(encoder: Path) -> None:
    write_json(encoder / "modules.json", [{"type": "my_code.Layer", "path": ""}])
    (line,) = problems(recipe_with(f"teacher.source={encoder}"))
    assert line.startswith(f"{encoder / 'modules.json'}: type names 'my_code.Layer', which could")
    assert problems(recipe_with(f"teacher.source={encoder}", "teacher.trust_remote_code=true")) == []


@pytest.mark.parametrize("suffix", [".csv", ".CSV.gz", ".csv.xz", ".jsonl", ".parquet", ".zip"])
def test_text_in_another_format_is_refused(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"pairs.tsv{suffix}"
    file.touch()
    (line,) = problems(recipe_with(f"corpus.tsv=[{{source: {file}, language: de}}]"))
    assert line.startswith(f"corpus.tsv.0.source: {file}: is a {suffix} file; parallel text is english<TAB>translation")
    (line,) = problems(recipe_with(f"monolingual={{text: [{{source: {file}, language: de}}]}}"))
    says = "this text is one sentence per line: write it so, as .txt"
    assert line == f"monolingual.text.0.source: {file}: is a {suffix} file; {says}"


def test_labelled_pairs_are_tables(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.csv", "a.tsv.gz", "a.jsonl")]
    for file in files:
        file.touch()
    (line,) = problems(recipe_with(f"labelled.graded=[{', '.join(map(str, files))}]"))
    assert line.startswith(f"labelled.graded.2: {files[2]}: expected .csv or .tsv, optionally with .gz or .xz; ")


def test_a_folder_in_place_of_text_is_named(tmp_path: Path) -> None:
    (line,) = problems(recipe_with(f"corpus.tsv=[{{source: {tmp_path}, language: de}}]"))
    assert line == f"corpus.tsv.0.source: {tmp_path}: is a folder; name a file"


def test_a_language_without_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "en-de.tsv").touch()
    changes = [f"corpus.tsv=[{{source: {tmp_path}/en-de.tsv, language: de}}]", "languages=[de, tr]"]
    assert problems(recipe_with(*changes)) == [], "catalogues may be in any language"
    (line,) = problems(recipe_with(*changes, "corpus.catalogues=[]"))
    assert line == "languages: no file of corpus.tsv is in 'tr'; add one, or remove the language"


def test_a_tab_separated_file_is_not_taken_for_csv(tmp_path: Path) -> None:
    file = tmp_path / "my.csv.tsv"
    file.touch()
    assert problems(recipe_with(f"corpus.tsv=[{{source: {file}, language: de}}]")) == []


def test_what_a_wheel_in_the_cache_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XCOMPRESS_CACHE", str(tmp_path))
    changes = ["vocabulary.words=wheel:words-only==1/{language}.txt", "languages=[tr]", "monolingual=null"]
    changes += ["stages.contrast.objectives={teacher: 384}"]
    assert problems(recipe_with(*changes)) == [], "the wheel is not there"
    (tmp_path / "wheels" / "words-only-1").mkdir(parents=True)
    (tmp_path / "wheels" / "words-only-1" / "en.txt").touch()
    (line,) = problems(recipe_with(*changes))
    assert line.startswith("vocabulary.words: wheel:words-only==1/tr.txt: the wheel has no 'tr.txt'; near it: en.txt")
