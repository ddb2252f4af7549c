"""What a model's folder may hold; tests/distillation/teachers/test_encoder.py opens such folders with the libraries."""

import json
import os
from pathlib import Path

import pytest

from tests.helpers.files import nested_folders
from xcompress.errors import InputError
from xcompress.sources.model_folder import check_model_folder, check_paths, read_modules, read_prompts

POOLING = "sentence_transformers.models.Pooling"


def write(folder: Path, **files: object) -> Path:
    """Write JSON files; a double underscore in a name is a slash."""
    for name, value in files.items():
        path = folder / f"{name.replace('__', '/')}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value))
    return folder


@pytest.mark.parametrize(
    "kind",
    [
        "sentence_transformers.models.Transformer",
        "sentence_transformers.base.modules.transformer.Transformer",
        "sentence_transformers.models.Transformer.Transformer",
        "sentence_transformers.sentence_transformer.modules.normalize.Normalize",
        "sentence_transformers.sparse_encoder.models.SpladePooling",
        "xcompress.st_module.StudentModule",
        "xcompress.interop.st_module.StudentTransformer",
        "xcompress.interop.sentence_transformers.StudentTransformer",
    ],
)
def test_classes_of_the_libraries_may_be_named(kind: str, tmp_path: Path) -> None:
    check_model_folder(write(tmp_path, modules=[{"type": kind, "path": ""}]))


@pytest.mark.parametrize(
    "kind",
    [
        *("evil.Evil", "Pooling", "", "os.system", "torch.nn.Linear", "xcompress.evil.StudentModule"),
        *("sentence_transformers", "sentence_transformers.Pooling2", "sentence_transformers_evil.models.Pooling"),
        *("sentence_transformers.util.import_from_string", "xsentence_transformers.models.Pooling"),
        *(f"{POOLING}.load", f"{POOLING}\n"),
    ],
)
def test_other_classes_are_refused_by_name(kind: str, tmp_path: Path) -> None:
    write(tmp_path, modules=[{"type": kind, "path": ""}])
    with pytest.raises(InputError) as error:
        check_model_folder(tmp_path, "teacher")
    assert f"modules.json: type names {kind!r}" in str(error.value)
    check_model_folder(tmp_path, trust_remote_code=True)


def test_the_advice_names_the_key_only_where_there_is_a_recipe(tmp_path: Path) -> None:
    write(tmp_path, config={"auto_map": {"AutoModel": "evil.Evil"}})
    with pytest.raises(InputError, match=r"model, or, .* set teacher\.ensemble\.1\.trust_remote_code to true"):
        check_model_folder(tmp_path, "teacher.ensemble.1")
    with pytest.raises(InputError, match=r"choose another model$"):
        check_model_folder(tmp_path)


def test_what_common_models_hold_is_accepted(tmp_path: Path) -> None:
    write(
        tmp_path,
        modules=[{"idx": 0, "name": "0", "path": "", "type": POOLING}, {"type": POOLING, "path": "1_Pooling/"}],
        data_config=[{"name": "file.jsonl.gz", "lines": 5}],
        config={"auto_map": None, "hidden_act": "gelu", "tokenizer_class": "BertTokenizer", "rope": {"type": "linear"}},
        tokenizer_config={"tokenizer_file": None, "special_tokens_map_file": "/home/maker/special_tokens_map.json"},
        sentence_bert_config={"max_seq_length": 128, "model_args": {"torch_dtype": "float16"}},
        config_sentence_transformers={"prompts": {"query": "query: ", "none": None}, "similarity_fn_name": "cosine"},
        **{"2_Dense__config": {"activation_function": "torch.nn.modules.activation.Tanh"}},
        **{"model.safetensors.index": {"weight_map": {"a": "model-00001-of-00002.safetensors"}}},
    )
    (tmp_path / "tokenizer.json").write_text("[" * 100_000)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "link").symlink_to("/etc/passwd")
    check_model_folder(tmp_path)
    assert read_prompts(tmp_path) == {"query": "query: ", "none": ""}


def test_an_adapter_names_another_model(tmp_path: Path) -> None:
    write(tmp_path, adapter_config={"base_model_name_or_path": "/somewhere/else"})
    with pytest.raises(InputError, match=r"adapter_config\.json: .*'/somewhere/else'"):
        check_model_folder(tmp_path)


@pytest.mark.parametrize("trust", [False, True])
@pytest.mark.parametrize(
    "files",
    [
        {"modules": [{"type": POOLING, "path": "../victim"}]},
        {"modules": [{"type": POOLING, "path": "1_Pooling/../../victim"}]},
        {"modules": [{"type": POOLING, "path": "/etc"}]},
        {"modules": [{"type": POOLING, "path": "a\0b"}]},
        {"modules": [{"type": POOLING, "path": ".hidden"}]},
        {"model.safetensors.index": {"weight_map": {"a": "../../x.safetensors"}}},
        {"onnx__model.safetensors.index": {"weight_map": {"a": "/etc/passwd"}}},
        {"config": {"transformers_weights": "../x.safetensors"}},
        {"config": {"configuration_files": ["config.1.0.0.json", "../config.4.0.0.json"]}},
        {"tokenizer_config": {"fast_tokenizer_files": ["../tokenizer.4.0.0.json"]}},
        {"2_Router__router_config": {"types": {"../../victim": POOLING}}},
        {"2_Router__router_config": {"types": {".hidden": POOLING}}},
    ],
)
def test_names_outside_the_folder_are_refused_whatever_is_trusted(
    files: dict[str, object], trust: bool, tmp_path: Path
) -> None:
    write(tmp_path / "model", **files)
    with pytest.raises(InputError, match="which is not a path inside the folder; do not use it"):
        check_model_folder(tmp_path / "model", trust_remote_code=trust)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("tokenizer_config", "tokenizer_file"),
        ("tokenizer_config", "vocab_file"),
        ("sentence_bert_config", "cache_dir"),
        ("sentence_bert_config", "tokenizer_name_or_path"),
    ],
)
def test_files_that_a_library_would_open_anywhere_are_refused(name: str, key: str, tmp_path: Path) -> None:
    write(tmp_path, **{name: {key: "secret.json"}})
    with pytest.raises(InputError, match=rf"{name}\.json: {key} names a file, 'secret\.json', which may lie anywhere"):
        check_model_folder(tmp_path)


def test_only_files_folders_and_links_between_them(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=r"model\.safetensors: neither a file nor a folder"):
        check_paths(tmp_path)


def test_folders_in_folders_end_somewhere(tmp_path: Path) -> None:
    with nested_folders(tmp_path / "model", 100):
        assert check_paths(tmp_path / "model") == []
    with (
        nested_folders(tmp_path / "deep"),
        pytest.raises(InputError, match=r"deep: holds over 100 folders in each other; remove them"),
    ):
        check_paths(tmp_path / "deep")


@pytest.mark.parametrize(
    ("target", "what"),
    [
        (".hidden", "linked: a link to a folder; copy the folder itself here"),
        ("..", "linked: a link that leads out of the folder"),
    ],
)
def test_no_link_leads_to_a_folder_that_is_not_checked(target: str, what: str, tmp_path: Path) -> None:
    write(tmp_path / ".hidden", config={"auto_map": {"AutoModel": "evil.Evil"}})
    (tmp_path / "linked").symlink_to(target)
    write(tmp_path, modules=[{"type": POOLING, "path": "linked"}])
    with pytest.raises(InputError, match=what):
        check_model_folder(tmp_path)


def test_modules_need_type_and_path_as_texts(tmp_path: Path) -> None:
    entries = ({}, 5, {"type": POOLING}, {"type": POOLING, "path": 5}, {"type": 5, "path": ""})
    for modules in (None, {}, [], *([entry] for entry in entries)):
        write(tmp_path, modules=modules)
        with pytest.raises(InputError, match=r"modules\.json: expected a list of modules with type and path"):
            read_modules(tmp_path)
