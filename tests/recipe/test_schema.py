from pathlib import Path

import pytest

from xcompress.errors import InputError
from xcompress.recipe import load_recipe
from xcompress.recipe.shipped import shipped

SHIPPED = sorted(shipped().values())
MINILM = next(path for path in SHIPPED if path.name == "four_stages.yaml")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_recipe_loads(path: Path) -> None:
    assert load_recipe(path).name == path.stem


def test_the_minilm_recipe_is_the_papers_shape() -> None:
    recipe = load_recipe(MINILM)
    assert (recipe.student.unit_layers, recipe.student.bottleneck) == (3, 128)
    assert [stage.train for stage in recipe.stages.values()] == ["assistant", "embeddings", "student", "student"]
    assert set(recipe.languages) == {"ar", "de", "es", "fr", "it", "nl", "tr"}


def test_overrides_change_values_and_the_hash() -> None:
    plain, changed = load_recipe(MINILM), load_recipe(MINILM, ["stages.contrast.steps=7", "student.bottleneck=null"])
    assert changed.stages["contrast"].steps == 7
    assert changed.student.bottleneck is None
    assert changed.hash != plain.hash == load_recipe(MINILM).hash


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("student.unit_layer=3", "unknown key student.unit_layer; did you mean unit_layers?"),
        ("stages.contrast.stpes=3", "unknown key stages.contrast.stpes; did you mean steps?"),
        ("stages.contrst.steps=3", "key stages.contrst.train is missing; add it, or did you mean stages.contrast?"),
        ("stages.new.steps=3", r"key stages.new.train is missing; add it .* \(and 1 more"),
        (
            "teacher.ensemble=[{source: a, normalize: false}]",
            "teacher: ensemble: several teachers are joined at unit length; leave out normalize: false",
        ),
        ("teacher.ensemble=[{source: a, weight: 0}]", "teacher.ensemble.0.weight: Input should be greater than 0"),
        ("quantum=1", "unknown key quantum; known keys are name, seed, "),
        ("stages.contrast.steps=-3", "stages.contrast.steps: Input should be greater than 0, got -3"),
        ("student.layers=[1, 4]", "student: layers: names 2 layers, and unit_layers is 3; make them equal"),
        ("student.layers=[4, 1, 2]", r"student: layers: \[4, 1, 2\] are not in ascending order; sort them, each once"),
        (
            "student.coda=[12]",
            "student: recurrences: needed beside a prelude or a coda; say how often",
        ),
        (
            "student={coda: [2, 12], recurrences: 2}",
            r"student: prelude, unit and coda: \[1, 2, 3, 2, 12\] are not in ascending order; sort them, each once",
        ),
        ("student.bottleneck=wide", "student.bottleneck: not a whole number, got 'wide'; write one, such as 2000"),
        ("stages.assistant.objectives={}", "stages.assistant: objectives is empty; name at least one"),
        ("stages.contrast.word_head=transform", "stages.contrast: word_head is transform, but no objective predicts"),
        ("stages.imitation.objectives={teachr: 1}", "objectives.teachr: not one of .*, got .*; did you mean teacher?"),
        ("stages.assistant.objectives={assistant: 1}", "cannot be its own teacher"),
        ("stages.embedding.objectives={teacher: 1}", "train: embeddings.* needs the objective embedding alone"),
        ("stages.contrast.train=assistant", "the last one trains the assistant"),
        ("stages.contrast.steps=null", "stages.contrast: has no length; give steps or epochs"),
        ("stages.contrast.epochs=2", r"stages.contrast: has steps \(640\) and epochs \(2\); set one of them to null"),
        ("stages.contrast.epochs=0", "stages.contrast.epochs: Input should be greater than 0"),
        ("stages.contrast.text=[talks]", "stages.contrast.text: no corpus.tsv is named talks; give name to files"),
        (
            "stages.contrast={train: student, objectives: {graded: 1}, text: [talks], steps: 1}",
            "stages.contrast: text is talks, but no objective reads translations; leave it out",
        ),
        ("stages.contrast.text=[]", r"stages.contrast.text: too few entries, got \[\]; give at least 1"),
        ("stages={}", "stages: too few entries; give at least 1"),
        ("corpus.min_words=30", "corpus: min_words: 30 is more than max_words, 20; correct one"),
        ("corpus.catalogues=[]", "corpus: names no text; give catalogues or tsv"),
        (
            "corpus.tsv=[{source: a/x.tsv, language: de, max_pairs: 9}, {source: b/x.tsv, language: de}]",
            r"corpus: tsv: two files of de count as x\.tsv, with different max_pairs; give one a name of its own",
        ),
        ("labelled.graded=[{source: a.csv, languages: [en, de]}]", "labelled.graded.0.source: a.csv lacks {language}"),
        ("vocabulary.words=words.txt", "vocabulary.words: words.txt lacks {language}; put it where file names differ"),
        (
            "labelled.graded=[{sourc: a.csv}]",
            r"unknown key labelled.graded.0.sourc; did you mean source\? .* \(and 2 more; `xcompress recipe validate",
        ),
        ("labelled.graded=[{languages: [de]}]", "labelled.graded.0.source is missing"),
        ("teacher.sha256=[1]", r"teacher.sha256: not a text, got \[1\]; write one text"),
        ("teacher.sha256={config.json: 3}", "teacher.sha256.config.json: not a text, got 3; quote it: '3'"),
        ("labelled.graded=[5]", "labelled.graded.0"),
        ("name=../elsewhere", "name: not a name, got '../elsewhere'; write letters, digits, dots"),
        ("name=5", "name: not a text, got 5; quote it: '5'"),
        ("languages=[]", "languages: .*at least 1"),
        ("languages=[de, en]", "name each target language once"),
        ("languages=[de, de]", "name each target language once"),
        ("languages=[no]", "languages.0: not a text, got False; YAML reads no and yes as booleans: .*'no'"),
        ("languages=de", r"languages: not a list, got 'de'; write a list, such as \[de\]"),
        ("languages=[FR]", "languages.0: not a language code, got 'FR'; write .* small letters, such as de"),
        ("languages=(de)", r"languages: not a list, got '\(de\)'; write a list, such as \[de\]"),
        ("student.bottleneck=yes", "student.bottleneck: YAML reads no and yes as booleans; write .*, got True"),
        ("student.layers=[1, no]", "student.layers.1: YAML reads no and yes as .*, got False"),
        ("stages.contrast.soup=on", "stages.contrast.soup: YAML reads no and yes as .*, got True"),
        (
            "stages.contrast.learning_rate=yes",
            "learning_rate: YAML reads no and yes as booleans; write a number, got True",
        ),
        ("stages.contrast.objectives={contrast: yes}", "objectives.contrast: YAML reads no and yes as .*, got True"),
        ("budgets.size_mb=on", "budgets.size_mb: YAML reads no and yes as .*, got True"),
        ("stages.contrast.warmup=0,1", "stages.contrast.warmup: not a number, got '0,1'; write one, such as 0.1"),
        ("compile=maybe", "compile: neither true nor false, got 'maybe'; write one of them"),
        (
            "corpus.tsv=[{source: a.tsv, language: FR}]",
            "corpus.tsv.0.language: not a language code, got 'FR'; write its two or three small letters, such as de",
        ),
        ("corpus.tsv=a.tsv", r"corpus.tsv: not a list, got 'a.tsv'; .* \[{source: ..., language: ...}\]"),
        (
            "corpus.tsv=[a.tsv]",
            "corpus.tsv.0: not a part with keys, got 'a.tsv'; write keys and values, such as {source: ..., language: "
            "...}; its keys are source, language, name, max_pairs",
        ),
        ("teacher=small", "teacher: not a part with keys, got 'small'; .* {source: ...}; its keys are source, sha256"),
        ("stages=5", "stages: not names with values, got 5; write them, such as {name: value}"),
        ("stages.contrast.steps=2.5", "stages.contrast.steps: not a whole number, got 2.5; write one, such as 2000"),
        ("stages.contrast.train=studnet", "not one of assistant, embeddings, student, got .*; did you mean student?"),
        ("widths=wide", "widths: not one of head, pca, equal, got 'wide'; choose one of them"),
        ("stages.contrast.objectives={monolingual: 1}", "monolingual has no text to learn from; give monolingual"),
        ("monolingual={word_sequences: 100000000}", "monolingual.word_sequences: .*10000000"),
        ("monolingual={}", "monolingual: names no text; give text or word_sequences"),
        ("monolingual={text: [{source: a.txt, language: ja}]}", "monolingual.text.0.language: ja is not in languages"),
        ("stages.contrast.objectives={correlation: 1}", "correlation has no groups to learn from; give correlation.te"),
        ("correlation={}", "correlation.teacher is missing; add it"),
        ("correlation={teacher: {source: a/b}, text: [talks]}", "correlation.text: no corpus.tsv is named talks"),
        ("correlation={teacher: {source: a/b, targets: live}}", "unknown key correlation.teacher.targets"),
        (
            "stages.contrast={train: student, objectives: {correlation: 1}, steps: 1, batch_size: 12}",
            "batch_size x correlation_pairs is 12, and correlation learns from groups of 8 pairs; make it a multiple",
        ),
        (
            "stages.contrast={train: student, objectives: {correlation: 1}, steps: 1, correlation_pairs: 2}",
            "correlation_pairs is 2, for the objective correlation beside others; leave it out, or add objectives",
        ),
        ("stages.contrast.depth_weights=[0, 0, 0]", "depth_weights are all 0, so nothing would be trained"),
        (
            "labelled.graded=[{source: 'a.{language}.csv', languages: [en, de], foo: 1}]",
            "unknown key labelled.graded.0.foo; known keys are source, languages",
        ),
        ("stages={a/b: {train: student, objectives: {teacher: 1}, steps: 1}}", "stages.a/b"),
    ],
)
def test_bad_values_are_one_line_with_file_and_key(override: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load_recipe(MINILM, [override])
    assert str(caught.value).startswith(f"{MINILM}: ")
    assert "\n" not in str(caught.value)


def test_a_stage_may_say_epochs_in_place_of_steps_and_which_text_it_reads() -> None:
    talks = "corpus.tsv=[{source: a.tsv, language: de, name: talks}, {source: b.tsv, language: fr, name: news}]"
    stage = "stages.contrast={train: student, objectives: {teacher: 1}, epochs: 0.5, text: [talks]}"
    contrast = load_recipe(MINILM, [talks, stage]).stages["contrast"]
    assert (contrast.steps, contrast.epochs, contrast.text) == (None, 0.5, ("talks",))
    with pytest.raises(InputError, match=r"no corpus\.tsv is named tlks; choose among news, talks"):
        load_recipe(MINILM, [talks, stage.replace("[talks]", "[tlks]")])


def test_text_is_named_that_is_in_one_of_the_languages() -> None:
    talks = "corpus.tsv=[{source: a.tsv, language: de, name: talks}, {source: b.tsv, language: ja, name: news}]"
    for key, value in (
        ("stages.contrast.text", "[news]"),
        ("correlation", "{teacher: {source: a/b}, text: [news]}"),
    ):
        with pytest.raises(
            InputError, match=r"(contrast|correlation)\.text: news has none of the languages; name other"
        ):
            load_recipe(MINILM, [talks, f"{key}={value}"])
        load_recipe(MINILM, [talks, f"{key}={value.replace('[news]', '[news, talks]')}"])


def test_an_override_changes_one_of_two_stages_that_share_a_yaml_alias(tmp_path: Path) -> None:
    text = MINILM.read_text(encoding="utf-8")
    stages = "stages:\n  one: &same {train: student, objectives: {teacher: 1}, steps: 5}\n  two: *same\n"
    (tmp_path / "alias.yaml").write_text(text[: text.index("stages:")] + stages, encoding="utf-8")
    changed = load_recipe(tmp_path / "alias.yaml", ["stages.one.steps=9"]).stages
    assert (changed["one"].steps, changed["two"].steps) == (9, 5)


@pytest.mark.parametrize("override", ["steps", "=3", "name.first=x", "name=[a", "extends=minilm_ru3"])
def test_bad_overrides_are_explained(override: str) -> None:
    with pytest.raises(InputError, match="override"):
        load_recipe(MINILM, [override])


@pytest.mark.parametrize(
    ("text", "message"),
    [("a: [1", "line 1.*not valid YAML"), ("- 1\n- 2", "holds list"), ("name: x", "key languages is missing; add it")],
)
def test_files_that_are_no_recipe_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        load_recipe(path)


def test_a_folder_is_no_recipe(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be read \(Is a directory\); give a UTF-8 YAML file"):
        load_recipe(tmp_path)


def test_a_missing_recipe_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none.yaml: no such recipe"):
        load_recipe(tmp_path / "none.yaml")
