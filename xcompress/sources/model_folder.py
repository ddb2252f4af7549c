"""Check a model's folder before a library opens it: it must not lead outside, and no code that it names may run.

sentence-transformers imports the classes that modules.json names, from the folder itself, too; transformers imports
those of `auto_map`. Both pass settings from the folder on to functions that read and write files.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

from xcompress.errors import InputError
from xcompress.files import read_json, read_mapping
from xcompress.paths import DEEPEST, path_inside

STUDENT = "xcompress-student"
"""The model_type in config.json of a student of xcompress."""
WITHOUT_THEIR_CODE = ("nomic_bert", "gte", "new")
"""The model_type of families whose published models name code of their own, which is not needed to read them."""
MODULES = "modules.json"
PROMPTS = "config_sentence_transformers.json"
NORMALIZE = "sentence_transformers.base.modules.normalize"
"""Where sentence-transformers 6 has its class Normalize; version 5.7 has it elsewhere, and nothing there."""
_CONFIGURATION = re.compile(r".*config.*\.json|special_tokens_map\.json", re.I)
"""Names of the files from which libraries take names of classes and files; the tokenizer's data are not among them."""
_MAPPING = re.compile(r"config\.json|tokenizer_config\.json|sentence_.*_config\.json|special_tokens_map\.json")
"""Names of those that must hold names and values."""
_LIBRARY_CLASS = re.compile(
    r"sentence_transformers(\.\w+)+\."
    r"(Asym|BoW|CLIPModel|CNN|Dense|Dropout|LayerNorm|LogitScore|LSTM|MLMTransformer|Normalize|Pooling|Router"
    r"|SparseAutoEncoder|SparseStaticEmbedding|SpladePooling|StaticEmbedding|Transformer|WeightedLayerPooling"
    r"|WordEmbeddings|WordWeights|PhraseTokenizer|WhitespaceTokenizer)"
)
_STUDENT_CLASS = re.compile(r"xcompress(\.[a-z_]+)*\.(st_module|sentence_transformers)\.Student(Module|Transformer)")
_ACTIVATION = re.compile(r"torch\.nn(\.modules\.\w+)?\.[A-Z]\w*")
_KERNEL = re.compile("[^/]+")
"""Names of attention implementations; one with a slash is code from the hub."""
_CLASS_NAME = re.compile(r"[^.]*")
"""A class of transformers is named without its module."""
_ALLOWED_VALUES: Mapping[str, Sequence[re.Pattern[str]]] = {
    "auto_map": (),
    "types": (_CLASS_NAME, _LIBRARY_CLASS),
    "tokenizer_class": (_CLASS_NAME, _LIBRARY_CLASS),
    "activation_function": (_CLASS_NAME, _ACTIVATION),
    "activation_fn": (_CLASS_NAME, _ACTIVATION),
    "sbert_ce_default_activation_function": (_CLASS_NAME, _ACTIVATION),
    "attn_implementation": (_KERNEL,),
    "_attn_implementation": (_KERNEL,),
    "_attn_implementation_internal": (_KERNEL,),
}
"""Keys whose values libraries import, and the values that are known to be harmless."""
_LIBRARY_OPTIONS = ("model_args", "tokenizer_args", "config_args", "model_kwargs", "processor_kwargs", "config_kwargs")
"""Settings in sentence_bert_config.json that become arguments of functions of transformers."""
_ALLOWED_OPTIONS = {
    *("add_bos_token", "add_eos_token", "add_pooling_layer", "add_prefix_space", "attn_implementation"),
    *("do_lower_case", "dtype", "is_decoder", "low_cpu_mem_usage", "max_length", "max_position_embeddings"),
    *("model_max_length", "padding", "padding_side", "torch_dtype", "truncation", "truncation_side", "unpad_inputs"),
    *("use_fast", "use_memory_efficient_attention", "use_safetensors"),
}
_NAMES_OF_FILES = ("transformers_weights", "configuration_files", "fast_tokenizer_files")
"""Keys that name further files of the folder."""
_NAMES_OF_MODELS = ("tokenizer_name_or_path", "cache_dir")
"""Settings in sentence_bert_config.json that name another folder."""


def check_model_folder(
    folder: Path, key: str | None = None, *, trust_remote_code: bool = False, only_read: bool = False
) -> None:
    """Check a model's folder before it is opened.

    :param key: key of the model in a recipe, for the advice in error messages; None where there is no recipe.
    :param trust_remote_code: whether the folder may name code; links and names that lead outside are refused anyway.
    :param only_read: whether the caller reads the weights itself, and opens the folder with no library that could run
        code. Then the config.json of a family `WITHOUT_THEIR_CODE` may name some.
    :raises InputError: when a file cannot be read or is not what it must be, a name or a link leads out of the folder,
        or the folder names code.
    """
    files = check_paths(folder)
    if trust_remote_code:
        return
    for file in files:
        if _is_named(file, MODULES):
            for module in read_modules(file.parent):
                if not (_LIBRARY_CLASS.fullmatch(module["type"]) or _STUDENT_CLASS.fullmatch(module["type"])):
                    _refuse_code(file, "type", module["type"], key)
        elif _is_named(file, "adapter_config.json"):
            base = read_mapping(file).get("base_model_name_or_path")
            raise InputError(
                f"{file}: an adapter of {base!r}, a model that could bring code; merge the adapter into it with peft "
                "(merge_and_unload) and save the whole model"
                + (f", or, if you trust that model, set {key}.trust_remote_code to true" if key else "")
            )
        elif _CONFIGURATION.fullmatch(file.name):
            _check_configuration(file, key, only_read)


def check_paths(folder: Path) -> list[Path]:
    """Check that no link, and no name in a file, leads out of a model's folder.

    :returns: the JSON files, without those in hidden folders, which no library reads.
    :raises InputError: when one does, or a folder or a configuration cannot be read.
    """
    files = []
    for path in _list_files(folder):
        name = path.relative_to(folder).as_posix()
        if path_inside(folder, name).is_dir():
            raise InputError(f"{path}: a link to a folder; copy the folder itself here")
        if path.name.lower().endswith(".index.json"):
            weights = read_mapping(path).get("weight_map")
            for shard in set(map(str, weights.values())) if isinstance(weights, dict) else ():
                path_inside(path.parent, shard)
        elif _is_named(path, MODULES):
            read_modules(path.parent)
        elif _is_named(path, PROMPTS):
            read_prompts(path.parent)
        elif _CONFIGURATION.fullmatch(path.name):
            _check_names_of_files(path)
        if path.suffix.lower() == ".json":
            files.append(path)
    return files


def read_modules(folder: Path) -> list[dict[str, Any]]:
    """Read modules.json: type and path of each module of a sentence-transformers model.

    :raises InputError: when it is damaged, or a module lies outside the folder.
    """
    file = folder / MODULES
    modules: list[dict[str, Any]] = read_json(file)
    are_objects = isinstance(modules, list) and modules and all(isinstance(module, dict) for module in modules)
    if not are_objects or not all(isinstance(module.get(key), str) for module in modules for key in ("type", "path")):
        raise InputError(f"{file}: expected a list of modules with type and path; save the model again")
    for module in modules:
        _check_module_path(file, module["path"])
    return modules


def read_prompts(folder: Path) -> dict[str, str]:
    """Read the prompts of a sentence-transformers model, by name; a prompt of null is empty.

    :raises InputError: when they are anything but texts by name.
    """
    file = folder / PROMPTS
    prompts = (read_mapping(file).get("prompts") if file.is_file() else None) or {}
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
        raise InputError(f"{file}: prompts must be texts by name; save the model again")
    return {name: text or "" for name, text in prompts.items()}


def _check_module_path(file: Path, name: str) -> None:
    """Check the folder of a module, as written in a file beside it; hidden folders are refused, as none is checked."""
    if any(part.startswith(".") for part in PurePosixPath(name).parts):
        raise InputError(f"{file}: names {name!r}, which is not a path inside the folder; do not use it")
    path_inside(file.parent, name)


def _is_named(file: Path, name: str) -> bool:
    """Tell whether a library that opens `name` in the file's folder opens this file; some disks ignore case."""
    return file.name.lower() == name and file.with_name(name).is_file()


def _list_files(folder: Path) -> Iterator[Path]:
    """Yield everything in a folder that is not a folder itself, without hidden folders; links are not followed.

    :raises InputError: when a folder cannot be read, lies too deep, or holds anything but files, folders and links.
    """

    def fail(error: OSError) -> NoReturn:
        raise InputError(f"{error.filename}: cannot be read ({error.strerror}); correct its permissions") from error

    for name, folders, files in os.walk(folder, onerror=fail):
        place = Path(name)
        if len(place.relative_to(folder).parts) > DEEPEST:
            raise InputError(f"{folder}: holds over {DEEPEST} folders in each other; remove them")
        links = [entry for entry in folders if (place / entry).is_symlink()]
        folders[:] = sorted(entry for entry in folders if not entry.startswith("."))
        for entry in sorted([*files, *links]):
            path = place / entry
            try:
                mode = path.lstat().st_mode
            except OSError as error:
                fail(error)
            if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
                raise InputError(f"{path}: neither a file nor a folder; remove it")
            yield path


def _check_names_of_files(file: Path) -> None:
    """Check the names of further files in a configuration, which libraries join with the folder's path."""
    for name, value in _entries(read_mapping(file) if _MAPPING.fullmatch(file.name) else read_json(file)):
        if name in _NAMES_OF_FILES:
            for entry in value if isinstance(value, list) else [value]:
                path_inside(file.parent, str(entry))
        # libraries open these as they are, relative to the current folder
        of_tokenizer = name.endswith("_file") and name != "special_tokens_map_file"
        named = of_tokenizer if file.name.lower() == "tokenizer_config.json" else name in _NAMES_OF_MODELS
        if named and isinstance(value, str):
            raise InputError(f"{file}: {name} names a file, {value!r}, which may lie anywhere; remove this entry")
        # a router names the folders of its modules
        if name == "types" and isinstance(value, dict):
            for route in value:
                _check_module_path(file, route)


def _check_configuration(file: Path, key: str | None, only_read: bool) -> None:
    """Refuse a configuration that names code, or options that are not known to be harmless."""
    content = read_json(file)
    is_of_model = file.name == "config.json" and isinstance(content, dict)
    if only_read and is_of_model and content.get("model_type") in WITHOUT_THEIR_CODE:
        content = {name: value for name, value in content.items() if name != "auto_map"}
    for name, value in _entries(content):
        for part in _parts(value) if name in _ALLOWED_VALUES else ():
            if isinstance(part, str) and not any(pattern.fullmatch(part) for pattern in _ALLOWED_VALUES[name]):
                _refuse_code(file, name, part, key)
        if name in _LIBRARY_OPTIONS and file.name.lower().startswith("sentence_"):
            if not isinstance(value, dict):
                raise InputError(f"{file}: {name} is {value!r}, not names and values; save the model again")
            for option in sorted(value.keys() - _ALLOWED_OPTIONS):
                _refuse_code(file, name, option, key)


def _refuse_code(file: Path, name: str, value: object, key: str | None) -> NoReturn:
    trust = f", or, if you have read that code, set {key}.trust_remote_code to true" if key else ""
    raise InputError(
        f"{file}: {name} names {value!r}, which could run code that comes with the model; choose another model{trust}"
    )


def _entries(value: object) -> Iterator[tuple[str, Any]]:
    """Yield the keys and values of all mappings in a JSON value, at any depth."""
    for part in _parts(value):
        if isinstance(part, dict):
            yield from part.items()


def _parts(value: object) -> Iterator[object]:
    """Yield a JSON value and all values in it, at any depth."""
    pending = [value]
    while pending:
        yield (part := pending.pop())
        if isinstance(part, dict):
            pending += part.values()
        elif isinstance(part, list):
            pending += part
