import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.helpers.e5s1 import small_e5s1_weights, write_e5s1
from tests.helpers.foreign import KINDS, encoder, save_encoder
from tests.helpers.recipe import SHAPE, write_bert
from tests.helpers.rotary import CONFIGS, rotary_vectors, save_rotary
from tests.helpers.student import CONFIG, make_tokenizer, save_student
from xcompress.distillation.teachers import encoder as encoders
from xcompress.distillation.teachers.encoder import encoder_fingerprint, open_encoder
from xcompress.distillation.teachers.layer_sources import check_layers, check_shape, import_layers
from xcompress.errors import InputError
from xcompress.files import read_json, write_json
from xcompress.metrics import cosines, unit_length
from xcompress.modeling.load import import_encoder
from xcompress.modeling.student import encode, token_ids
from xcompress.recipe import EncoderSection, TeacherSection

TEXTS = ["the boat is late", "rain", "a red boat waits near the old bridge", "der Zug kommt heute nicht"]
LONG = [*TEXTS, "rain " * 160]


@pytest.fixture(autouse=True)
def float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoders, "fast_inference", nullcontext)
    monkeypatch.setattr("xcompress.distillation.teachers.vectors.fast_inference", nullcontext)


@cache
def bert() -> Path:
    """A folder of a Hugging Face encoder; tests must not change it."""
    folder = Path(mkdtemp())
    write_bert(folder, layers=2, seed=1)
    return folder


def sentence_transformer(folder: Path, pooling: str) -> Path:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    modules = [Transformer(str(bert()), max_seq_length=32), Pooling(SHAPE["hidden_size"], pooling)]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder))
    return folder


def by_hand(texts: Sequence[str], pooling: str) -> np.ndarray:
    """Token vectors of the model itself, sentence by sentence, pooled here."""
    from transformers import BertModel

    model, tokenizer = BertModel.from_pretrained(bert()).eval(), make_tokenizer()
    with torch.no_grad():
        states = [model(torch.tensor([tokenizer.encode(text).ids])).last_hidden_state[0] for text in texts]
    return np.stack([(state[0] if pooling == "cls" else state.mean(0)).numpy() for state in states])


def close(left: np.ndarray, right: np.ndarray) -> bool:
    return left.shape == right.shape and bool(np.abs(left - right).max() < 1e-4)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("whole", [True, False])
def test_a_folder_gives_the_vectors_of_its_model(
    pooling: str, whole: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = sentence_transformer(tmp_path, pooling) if whole else bert()
    part = TeacherSection(source=str(folder), pooling=None if whole else pooling, normalize=False)
    capsys.readouterr()
    found = open_encoder(part, "teacher")(TEXTS)
    assert capsys.readouterr().err == "", "transformers shows a progress bar of its own"
    assert close(found, by_hand(TEXTS, pooling))


def test_a_teacher_is_scaled_to_unit_length_when_asked_to_and_an_assistant_never_is() -> None:
    source = {"source": str(bert()), "pooling": "mean"}
    raw = open_encoder(EncoderSection(**source), "assistant")(TEXTS)
    assert np.abs(np.linalg.norm(raw, axis=1) - 1).min() > 0.1
    assert close(
        open_encoder(TeacherSection(**source), "teacher")(TEXTS), raw / np.linalg.norm(raw, axis=1, keepdims=True)
    )


def test_the_prefix_stands_in_front_of_every_sentence() -> None:
    part = EncoderSection(source=str(bert()), pooling="mean", prefix="query: ")
    assert close(open_encoder(part, "teacher")(TEXTS), by_hand([f"query: {text}" for text in TEXTS], "mean"))


def test_the_prefix_replaces_a_prompt_that_the_model_brings(tmp_path: Path) -> None:
    folder = sentence_transformer(tmp_path, "mean")
    settings = read_json(folder / "config_sentence_transformers.json")
    write_json(
        folder / "config_sentence_transformers.json",
        settings | {"prompts": {"rain": "rain "}, "default_prompt_name": "rain"},
    )
    expected = {"query: ": "query: ", "": "rain "}
    for prefix, used in expected.items():
        found = open_encoder(EncoderSection(source=str(folder), prefix=prefix), "teacher")(TEXTS)
        assert close(found, by_hand([used + text for text in TEXTS], "mean"))


def test_a_folder_without_pooling_is_refused_with_the_key_to_set() -> None:
    with pytest.raises(InputError, match=r"^teacher\.pooling: not given, .*set it to mean or cls"):
        open_encoder(TeacherSection(source=str(bert())), "teacher")


def test_another_pooling_than_the_models_is_refused_with_both(tmp_path: Path) -> None:
    part = TeacherSection(source=str(sentence_transformer(tmp_path, "cls")), pooling="mean")
    with pytest.raises(InputError, match=r"teacher\.pooling: is 'mean', but .* declares 'cls'"):
        open_encoder(part, "teacher")
    student = save_student(tmp_path / "student")
    with pytest.raises(InputError, match=r"assistant\.pooling: is 'cls', but .*student declares 'mean'"):
        check_layers(EncoderSection(source=str(student), pooling="cls"), student, "assistant")


def test_a_layer_source_is_pooled_by_the_mean_or_the_first_token(tmp_path: Path) -> None:
    for pooling in ("mean", "cls"):
        folder = sentence_transformer(tmp_path / pooling, pooling)
        student, tokenizer = import_layers(EncoderSection(source=str(folder)), folder, "assistant")
        assert student.config.pooling == pooling
        assert close(encode(student, tokenizer, TEXTS), unit_length(by_hand(TEXTS, pooling)))
    folder = sentence_transformer(tmp_path / "max", "max")
    with pytest.raises(InputError, match="pooled by 'max', only mean, cls, lasttoken are"):
        check_layers(EncoderSection(source=str(folder)), folder, "assistant")


@pytest.mark.parametrize("whole", [False, True], ids=["of transformers", "of sentence-transformers"])
def test_a_classifier_is_no_encoder_unless_the_recipe_names_its_pooling(whole: bool, tmp_path: Path) -> None:
    save_encoder(tmp_path, "bert")
    write_json(
        tmp_path / "config.json",
        read_json(tmp_path / "config.json") | {"architectures": ["BertForSequenceClassification"]},
    )
    if whole:  # as its CrossEncoder is saved
        kind = "sentence_transformers.base.modules.transformer.Transformer"
        write_json(tmp_path / "modules.json", [{"idx": 0, "name": "0", "path": "", "type": kind}])
    section, named = (EncoderSection(source=str(tmp_path), pooling=pooling) for pooling in (None, "mean"))
    for refuse in (open_encoder, lambda section, key: import_layers(section, tmp_path, key)):
        with pytest.raises(InputError, match=r"a\.source: .* is a BertForSequenceClassification, .* set a\.pooling to"):
            refuse(section, "a")
    if not whole:
        assert open_encoder(named, "a")(["rain"]).shape == (1, 32) and import_layers(named, tmp_path, "a")


def test_a_students_folder_keeps_its_own_prefix_unless_the_recipe_names_one(tmp_path: Path) -> None:
    folder = save_student(tmp_path / "student")
    student, tokenizer = import_encoder(folder)
    found = open_encoder(TeacherSection(source=str(folder)), "teacher")(TEXTS)
    assert close(found, encode(student, tokenizer, TEXTS))
    other = open_encoder(TeacherSection(source=str(folder), prefix="rain "), "teacher")(TEXTS)
    assert close(other, encode(student, tokenizer, [f"rain {text}" for text in TEXTS])) is False
    assert cosines(found, other).max() < 0.9999


def e5s1(tmp_path: Path) -> dict[str, object]:
    write_e5s1(tmp_path / "small.bin", small_e5s1_weights())
    vocabulary = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3} | {
        word: 4 + n for n, word in enumerate(["a", "b", "c", "d"])
    }
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(tmp_path / "words.json"))
    return {"source": str(tmp_path / "small.bin"), "tokenizer": {"source": str(tmp_path / "words.json")}}


def test_an_e5s1_file_needs_a_tokenizer_and_is_normalised_as_the_recipe_says(tmp_path: Path) -> None:
    part = e5s1(tmp_path)
    raw = open_encoder(TeacherSection(**part, normalize=False), "teacher")(["a b", "c"])
    scaled = open_encoder(TeacherSection(**part), "teacher")(["a b", "c"])
    assert np.abs(np.linalg.norm(raw, axis=1) - 1).min() > 0.01
    assert close(scaled, unit_length(raw))
    with pytest.raises(InputError, match=r"teacher\.tokenizer: not given"):
        open_encoder(TeacherSection(source=part["source"]), "teacher")
    first = open_encoder(TeacherSection(**part, pooling="cls"), "teacher")(["a b", "c"])
    assert not close(first, scaled)


def test_a_source_without_a_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no model")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="neither a model's folder, an E5S1 file nor"):
        open_encoder(EncoderSection(source=str(tmp_path / "notes.txt")), "assistant")
    with pytest.raises(InputError, match=r"neither modules.json nor config.json"):
        open_encoder(EncoderSection(source=str(tmp_path / "empty")), "assistant")
    write_json(tmp_path / "empty" / "config.json", {"model_type": "bert"})
    with pytest.raises(InputError, match=r"assistant\.source: .* has no safetensors weights"):
        open_encoder(EncoderSection(source=str(tmp_path / "empty"), pooling="mean"), "assistant")
    (tmp_path / "empty" / "model.safetensors").touch()
    with pytest.raises(InputError, match=r"assistant\.source: .* cannot be opened by sentence-transformers \("):
        open_encoder(EncoderSection(source=str(tmp_path / "empty"), pooling="mean"), "assistant")


def test_a_tokenizer_of_transformers_5_is_opened_or_refused_with_what_to_change(tmp_path: Path) -> None:
    shutil.copytree(bert(), tmp_path, dirs_exist_ok=True)
    settings = tmp_path / "tokenizer_config.json"
    before = read_json(settings)
    older = before | {"tokenizer_class": "PreTrainedTokenizerFast", "additional_special_tokens": ["[MASK]"]}
    named, listed = {"tokenizer_class": "TokenizersBackend"}, {"extra_special_tokens": ["[MASK]"]}
    part = TeacherSection(source=str(tmp_path), pooling="mean", normalize=False)
    for newer in (named, listed, named | listed):
        write_json(settings, before | newer)
        if not hasattr(transformers, "TokenizersBackend"):
            advice = " and ".join(
                {"tokenizer_class": "PreTrained.*", "extra_special_tokens": "additi.*"}[key] for key in newer
            )
            with pytest.raises(InputError, match=rf"teacher\.source: .*tokenizer_config.json .*; write {advice} there"):
                open_encoder(part, "teacher")
            write_json(settings, older)
        assert close(open_encoder(part, "teacher")(TEXTS), by_hand(TEXTS, "mean"))


def test_a_module_is_found_under_the_name_that_sentence_transformers_6_gives_it(tmp_path: Path) -> None:
    folder = sentence_transformer(tmp_path, "mean")
    modules = read_json(folder / "modules.json")
    new_name = "sentence_transformers.base.modules.normalize.Normalize"
    write_json(folder / "modules.json", [*modules, {"idx": 2, "name": "2", "path": "2_Normalize", "type": new_name}])
    write_json(folder / "2_Normalize" / "config.json", {"module_input_name": "sentence_embedding"})
    found = open_encoder(TeacherSection(source=str(folder), normalize=False), "teacher")(TEXTS)
    assert close(found, unit_length(by_hand(TEXTS, "mean")))


def test_pickled_weights_are_not_read(tmp_path: Path) -> None:
    shutil.copytree(bert(), tmp_path, dirs_exist_ok=True)
    torch.save(load_file(tmp_path / "model.safetensors"), tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(InputError, match="safetensors") as refused:
        open_encoder(EncoderSection(source=str(tmp_path), pooling="mean"), "teacher")
    assert "\n" not in str(refused.value)


def test_a_teacher_that_fails_on_a_text_is_one_line(tmp_path: Path) -> None:
    save_encoder(tmp_path, "bert", vocab_size=6)
    teacher = open_encoder(EncoderSection(source=str(tmp_path), pooling="mean"), "teacher")
    with pytest.raises(InputError, match=r"teacher\.source: .* was opened, but fails on a text \(index out of range"):
        teacher(["a red boat waits near the old bridge"])


def test_pins_are_checked(tmp_path: Path) -> None:
    digest = sha256((bert() / "config.json").read_bytes()).hexdigest()
    source = {"source": str(bert()), "pooling": "mean"}
    assert open_encoder(EncoderSection(**source, sha256={"config.json": digest}), "teacher")(["rain"]).shape == (1, 32)
    with pytest.raises(InputError, match=f"sha256 is {digest} but {'0' * 64} is pinned"):
        open_encoder(EncoderSection(**source, sha256={"config.json": "0" * 64}), "teacher")
    (tmp_path / "file.bin").write_bytes(b"E5S1")
    with pytest.raises(InputError, match=r"teacher\.sha256: names files inside a folder"):
        open_encoder(EncoderSection(source=str(tmp_path / "file.bin"), sha256={"a": "0"}), "teacher")


STATED = {"vocabulary": 400, "hidden": 32, "layers": 6, "heads": 4, "intermediate": 64, "positions": 160, "types": 2}


def test_a_shape_that_fits_passes_and_each_size_that_does_not_is_named() -> None:
    check_shape(EncoderSection(source="x/y", shape=STATED), CONFIG, "assistant")
    check_shape(EncoderSection(source="x/y"), CONFIG, "assistant")
    for name, value in STATED.items():
        wrong = EncoderSection(source="x/y", shape=STATED | {name: value + 1})
        with pytest.raises(InputError, match=rf"assistant\.shape\.{name}: is {value + 1}, but x/y has {value}"):
            check_shape(wrong, CONFIG, "assistant")


def test_the_shape_of_a_folder_is_checked_when_it_is_opened() -> None:
    sizes = STATED | {"layers": 2, "positions": 64}
    source = {"source": str(bert()), "pooling": "mean"}
    open_encoder(EncoderSection(**source, shape=sizes), "teacher")
    with pytest.raises(InputError, match=r"teacher\.shape\.layers: is 3, but .* has 2"):
        open_encoder(EncoderSection(**source, shape=sizes | {"layers": 3}), "teacher")


def test_encoders_that_give_only_vectors_take_no_shape_pooling_tokenizer_or_digest() -> None:
    with pytest.raises(InputError, match=r"teacher\.pooling: python:math:sqrt gives only vectors"):
        open_encoder(EncoderSection(source="python:math:sqrt", pooling="mean"), "teacher")
    with pytest.raises(InputError, match=r"teacher\.sha256: python:math:sqrt"):
        open_encoder(EncoderSection(source="python:math:sqrt", sha256="0"), "teacher")
    with pytest.raises(InputError, match=r"teacher\.shape: vectors\.npy"):
        open_encoder(EncoderSection(source="vectors.npy", shape=STATED), "teacher")


def test_the_fingerprint_changes_with_everything_that_changes_the_vectors(tmp_path: Path) -> None:
    write_json(tmp_path / "model" / "config.json", {"a": 1})
    source = {"source": str(tmp_path / "model")}
    parts = [
        EncoderSection(**source),
        EncoderSection(**source, prefix="query: "),
        EncoderSection(**source, pooling="cls"),
        TeacherSection(**source),
        EncoderSection(**source, tokenizer={"source": str(tmp_path / "model" / "config.json")}),
    ]
    before = [encoder_fingerprint(part) for part in parts]
    assert len(set(before)) == len(parts)
    assert before == [encoder_fingerprint(part) for part in parts]
    assert (
        before[0]
        == encoder_fingerprint(EncoderSection(**source, shape=STATED))
        == encoder_fingerprint(TeacherSection(**source, normalize=False))
    )
    write_json(tmp_path / "model" / "config.json", {"a": 2})
    assert not set(before) & {encoder_fingerprint(part) for part in parts}


def test_the_fingerprint_of_a_table_follows_both_of_its_files(tmp_path: Path) -> None:
    part = EncoderSection(source=str(tmp_path / "a.npy"))
    found = []
    for vectors, text in ((1, "x"), (2, "x"), (2, "y")):
        np.save(tmp_path / "a.npy", np.full((1, 2), vectors, dtype=np.float32))
        (tmp_path / "a.txt").write_text(text)
        found.append(encoder_fingerprint(part))
    assert len(set(found)) == 3


TRAP = "import pathlib; pathlib.Path({marker!r}).touch()\nclass Evil:\n    pass\n"


def set_trap(folder: Path, changes: dict[str, dict[str, object]]) -> Path:
    """Write code into a model's folder and change its JSON files to name it; return the file that the code writes."""
    marker = folder.parent / "ran"
    (folder / "evil.py").write_text(TRAP.format(marker=str(marker)))
    for name, change in changes.items():
        (folder / name).parent.mkdir(exist_ok=True)
        value = read_json(folder / name) if (folder / name).is_file() else {}
        write_json(folder / name, [*value, change] if isinstance(value, list) else value | change)
    return marker


ROUTER = {"name": "2", "path": "2_Router", "type": "sentence_transformers.sentence_transformer.modules.Router"}
WORDS = {"name": "2", "path": "2_Words", "type": "sentence_transformers.models.WordEmbeddings"}
DENSE = {"name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"}
ROUTES = {"structure": {"query": ["a"]}, "parameters": {}}
TRAPS: dict[str, dict[str, dict[str, object]]] = {
    "evil.Evil": {"modules.json": {"name": "2", "path": "", "type": "evil.Evil"}},
    "os.system": {"modules.json": {"name": "2", "path": "", "type": "os.system"}},
    "sentence_transformers.base.model.torch": {
        "modules.json": {"name": "2", "path": "", "type": "sentence_transformers.base.model.torch"}
    },
    "a: evil.Evil": {"modules.json": ROUTER, "2_Router/router_config.json": {"types": {"a": "evil.Evil"}, **ROUTES}},
    "b: evil.Evil": {"modules.json": ROUTER, "2_Router/config.json": {"types": {"b": "evil.Evil"}, **ROUTES}},
    "tokenizer_class: evil.Evil": {
        "modules.json": WORDS,
        "2_Words/wordembedding_config.json": {"tokenizer_class": "evil.Evil"},
    },
    "torch.hub.load": {"modules.json": DENSE, "2_Dense/config.json": {"activation_function": "torch.hub.load"}},
    "auto_map": {"config.json": {"auto_map": {"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil"}}},
    "auto_map: ": {"tokenizer_config.json": {"auto_map": {"AutoTokenizer": ["evil.Evil", None]}}},
    "attn_implementation: org/kernel": {"config.json": {"attn_implementation": "org/kernel"}},
    "text_config: evil.Evil": {"config.json": {"text_config": {"auto_map": {"AutoConfig": "evil.Evil"}}}},
    "offload_folder": {"sentence_bert_config.json": {"model_args": {"offload_folder": "x"}}},
}


@pytest.mark.parametrize("named", TRAPS)
def test_code_in_a_teachers_folder_never_runs(named: str, tmp_path: Path) -> None:
    folder = sentence_transformer(tmp_path / "model", "mean")
    marker = set_trap(folder, TRAPS[named])
    with pytest.raises(InputError, match=r"\.json: ") as error:
        open_encoder(TeacherSection(source=str(folder)), "teacher")
    assert not marker.exists()
    assert named.rpartition(": ")[2] in str(error.value)
    assert "set teacher.trust_remote_code to true" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "open_model",
    [
        lambda folder: open_encoder(TeacherSection(source=str(folder), pooling="mean"), "teacher"),
        import_encoder,
    ],
    ids=["teacher", "layer source"],
)
def test_code_of_an_encoder_without_modules_never_runs(open_model: Callable[[Path], object], tmp_path: Path) -> None:
    shutil.copytree(bert(), tmp_path / "model")
    marker = set_trap(tmp_path / "model", TRAPS["auto_map"])
    with pytest.raises(InputError, match=r"config\.json: auto_map names 'evil\.Evil'"):
        open_model(tmp_path / "model")
    assert not marker.exists()


@pytest.mark.parametrize("trust", [False, True])
def test_a_hub_model_with_code_is_refused_unless_it_is_trusted(
    trust: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_json(tmp_path / "config.json", {"auto_map": {"AutoModel": "modeling.Own"}})
    monkeypatch.setattr(encoders, "resolve", lambda *_: tmp_path)
    monkeypatch.setattr(encoders, "_open_sentence_transformer", lambda section, path, key: path)
    section = TeacherSection(source="org/name", pooling="mean", normalize=False, trust_remote_code=trust)
    if trust:
        assert open_encoder(section, "teacher") == tmp_path
    else:
        message = r"auto_map names 'modeling\.Own'.* set teacher\.trust_remote_code to true"
        with pytest.raises(InputError, match=message):
            open_encoder(section, "teacher")


def test_a_recipe_without_trust_has_the_hash_of_earlier_versions() -> None:
    section = TeacherSection(source="org/name")
    assert "trust_remote_code" not in section.model_dump(by_alias=True)
    assert TeacherSection(source="org/name", trust_remote_code=False).model_dump() == section.model_dump()
    assert TeacherSection(source="org/name", trust_remote_code=True).model_dump()["trust_remote_code"]


def test_code_runs_where_the_recipe_allows_it(tmp_path: Path) -> None:
    folder = sentence_transformer(tmp_path / "model", "mean")
    code = "from sentence_transformers.sentence_transformer.modules import Normalize\nclass Own(Normalize):\n    pass\n"
    (folder / "own_module.py").write_text(code)
    modules = read_json(folder / "modules.json")
    write_json(folder / "modules.json", [*modules, {"idx": 2, "name": "2", "path": "2_Own", "type": "own_module.Own"}])
    (folder / "2_Own").mkdir()
    allowed = TeacherSection(source=str(folder), trust_remote_code=True, normalize=False)
    vectors = open_encoder(allowed, "teacher")(TEXTS)
    assert np.abs(np.linalg.norm(vectors, axis=1) - 1).max() < 1e-5
    assert encoder_fingerprint(allowed) != encoder_fingerprint(TeacherSection(source=str(folder), normalize=False))


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "1_Pooling/config.json"])
def test_a_link_out_of_the_folder_is_refused(name: str, tmp_path: Path) -> None:
    folder = sentence_transformer(tmp_path / "model", "mean")
    (folder / name).rename(tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=f"{name}: a link that leads out of the folder"):
        open_encoder(TeacherSection(source=str(folder)), "teacher")


def test_a_snapshot_of_the_hubs_cache_opens(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "models--org--name" / "blobs", tmp_path / "models--org--name" / "snapshots" / "abc"
    sentence_transformer(snapshot, "mean")
    blobs.mkdir()
    for number, file in enumerate(sorted(path for path in snapshot.rglob("*") if path.is_file())):
        file.rename(blobs / str(number))
        file.symlink_to(Path(*[".."] * (len(file.relative_to(snapshot).parts) + 1), "blobs", str(number)))
    vectors = open_encoder(TeacherSection(source=str(snapshot), normalize=False), "teacher")(TEXTS)
    assert close(vectors, by_hand(TEXTS, "mean"))
    assert import_encoder(snapshot)[0].config.pooling == "mean"


@pytest.mark.parametrize("whole", [True, False])
def test_a_model_that_lacks_a_weight_is_refused(whole: bool, tmp_path: Path) -> None:
    folder = (
        sentence_transformer(tmp_path / "model", "mean") if whole else Path(shutil.copytree(bert(), tmp_path / "m"))
    )
    weights = load_file(folder / "model.safetensors")
    del weights["encoder.layer.1.attention.self.key.weight"], weights["embeddings.LayerNorm.bias"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    section = TeacherSection(source=str(folder), pooling=None if whole else "mean")
    with pytest.raises(InputError, match=r"lacks 2 weights of its model, such as embeddings\.LayerNorm\.bias, which"):
        open_encoder(section, "teacher")


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_of_any_kind_opens_without_its_pooler(kind: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(encoder(kind), tmp_path / "model"))
    weights = load_file(folder / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if "pooler" not in name}
    save_file(kept, folder / "model.safetensors", {"format": "pt"})
    vectors = open_encoder(TeacherSection(source=str(folder), pooling="mean"), "teacher")(TEXTS)
    expected = open_encoder(TeacherSection(source=str(encoder(kind)), pooling="mean"), "teacher")(TEXTS)
    np.testing.assert_array_equal(vectors, expected)


DAMAGED = {
    "modules.json": ("null", "[{}]", "5", '[{"type": 5, "path": ""}]', '[{"type": "x.Transformer", "path": 5}]'),
    "config_sentence_transformers.json": ("null", '{"prompts": true}', '{"prompts": {"a": 5}}'),
    "config.json": ("null", "[]", "[" * 100_000, "{", "\ufeff{}"),
    "sentence_bert_config.json": ("true", '{"model_args": 5}'),
    "tokenizer_config.json": ("[]", '"x"'),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_folder_is_one_line(name: str, tmp_path: Path) -> None:
    folder = sentence_transformer(tmp_path / "model", "mean")
    for text in DAMAGED[name]:
        (folder / name).write_text(text)
        with pytest.raises(InputError, match=r"\.json") as error:
            open_encoder(TeacherSection(source=str(folder)), "teacher")
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("kind", CONFIGS)
def test_a_family_is_read_without_the_code_that_it_names(kind: str, pooling: str, tmp_path: Path) -> None:
    named = {} if kind == "jina_embeddings_v3" else {"auto_map": {"AutoModel": "modeling.Own"}}
    folder = save_rotary(tmp_path / "model", kind, pooling, **named)
    (folder / "modeling.py").write_text(TRAP.format(marker=str(tmp_path / "ran")))
    student, tokenizer = import_encoder(folder)
    assert max(map(len, token_ids(tokenizer, LONG, student.config))) > 128
    expected = rotary_vectors(folder, token_ids(tokenizer, LONG, student.config))
    for normalize in (True, False):  # the model itself scales its vectors
        found = open_encoder(TeacherSection(source=str(folder), normalize=normalize), "teacher")(LONG)
        np.testing.assert_allclose(found, expected, atol=5e-6)
        np.testing.assert_allclose(found, encode(student, tokenizer, LONG), atol=1e-6)
    assert not (tmp_path / "ran").exists()


def test_the_code_of_a_family_runs_where_the_recipe_allows_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(encoders, "_open_sentence_transformer", lambda section, path, key: path)
    section = TeacherSection(source=str(save_rotary(tmp_path, "new")), normalize=False, trust_remote_code=True)
    assert open_encoder(section, "teacher") == tmp_path


def test_a_family_without_modules_is_pooled_and_scaled_as_the_recipe_says(tmp_path: Path) -> None:
    folder = save_rotary(tmp_path, "new", "mean")
    expected = open_encoder(TeacherSection(source=str(folder)), "teacher")(TEXTS)
    (folder / "modules.json").unlink()
    raw, scaled = (TeacherSection(source=str(folder), pooling="mean", normalize=on) for on in (False, True))
    assert close(open_encoder(scaled, "teacher")(TEXTS), expected)
    found = open_encoder(raw, "teacher")(TEXTS)
    assert close(unit_length(found), expected) and np.abs(np.linalg.norm(found, axis=1) - 1).min() > 0.1
    with pytest.raises(InputError, match=r"^teacher\.pooling: not given, .*set it to mean or cls"):
        open_encoder(TeacherSection(source=str(folder)), "teacher")


def test_a_student_with_the_layers_of_a_family_is_a_teacher(tmp_path: Path) -> None:
    student, tokenizer = import_encoder(save_rotary(tmp_path / "gte", "gte"))
    (tmp_path / "student").mkdir()
    student.save(tmp_path / "student", tokenizer)
    found = open_encoder(TeacherSection(source=str(tmp_path / "student")), "teacher")(TEXTS)
    assert close(found, encode(student, tokenizer, TEXTS))


@pytest.mark.parametrize("file", ["tokenizer_config.json", "2_Other/config.json"])
def test_other_code_in_the_folder_of_a_family_is_refused(file: str, tmp_path: Path) -> None:
    """As is that of a family in a folder that sentence-transformers opens."""
    read_here = save_rotary(tmp_path / "gte", "new")
    opened = sentence_transformer(tmp_path / "model", "mean")
    marker = set_trap(read_here, {file: {"auto_map": {"AutoModel": "evil.Evil"}}})
    set_trap(opened, {file: {"model_type": "new", "auto_map": {"AutoModel": "evil.Evil"}}})
    for folder in (read_here, opened):
        with pytest.raises(InputError, match=rf"{file}: auto_map names 'evil\.Evil'.*teacher\.trust_remote_code"):
            open_encoder(TeacherSection(source=str(folder)), "teacher")
    assert not marker.exists()
