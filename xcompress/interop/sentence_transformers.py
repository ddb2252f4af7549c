"""A student as a module of sentence-transformers, which loads it through modules.json in the student's folder.

Since version 6, sentence-transformers imports classes of other packages only with
`SentenceTransformer(folder, trust_remote_code=True)`. `open_student` does not need that, because the caller imports the
class.

Optimum loads the class in the same way: `optimum-cli export onnx --model <student> <output>` works where xcompress is
installed. Optimum requires that the name of the first module's class contains "Transformer" and that its `auto_model`
is a model of transformers.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import InputModule
from tokenizers import Tokenizer
from torch import Tensor

from xcompress.errors import InputError
from xcompress.interop.transformers import StudentModel
from xcompress.modeling.student import STUDENT_FILES, Student, pad, token_ids


class StudentTransformer(InputModule):
    """A student with its tokenizer: maps texts to `token_embeddings` and `sentence_embedding`.

    :param student: the encoder; its prefix is put in front of each text, unless a prompt is given.
    :param tokenizer: the student's tokenizer.
    """

    def __init__(self, student: Student, tokenizer: Tokenizer) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.auto_model = StudentModel(student, tokenizer)
        self.tokenizer = tokenizer

    @property
    def max_seq_length(self) -> int:
        """The longest text in tokens; longer texts are truncated."""
        return self.student.config.max_tokens

    @max_seq_length.setter
    def max_seq_length(self, tokens: int) -> None:
        config = self.student.config
        longest = config.max_position_embeddings - config.position_offset
        if not 1 <= tokens <= longest:
            raise InputError(
                f"max_seq_length: {tokens} requested, but the student has {longest} positions; choose fewer"
            )
        self.student.config = replace(config, max_tokens=tokens)

    @property
    def student(self) -> Student:
        """The encoder."""
        return self.auto_model.student

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **_: object) -> dict[str, Tensor]:
        """Turn texts into `input_ids` and `attention_mask`, both (N, L).

        :param prompt: text to put in front of each input instead of the student's prefix.
        """
        config = self.student.config
        sequences = token_ids(self.tokenizer, inputs, replace(config, prefix=prompt) if prompt else config)
        input_ids, attention_mask = pad(sequences, config.pad_token_id)
        return {"input_ids": input_ids, "attention_mask": attention_mask}

    def forward(self, features: dict[str, Any], **_: object) -> dict[str, Any]:
        """Add `token_embeddings` (N, L, D) and `sentence_embedding` (N, D) to the features."""
        tokens, sentences = self.student(features["input_ids"], features["attention_mask"])
        return {**features, "token_embeddings": tokens, "sentence_embedding": sentences}

    def get_embedding_dimension(self) -> int:
        """Return D, the dimension of the sentence vectors."""
        return self.student.config.dimension

    def get_config_dict(self) -> dict[str, Any]:
        """Return the values that `print(model)` shows for this module."""
        config = self.student.config
        names = ("prelude_layers", "unit_layers", "recurrences", "coda_layers", "dimension", "max_tokens")
        return {name: getattr(config, name) for name in names}

    def save(self, output_path: str, *_: object, safe_serialization: bool = True, **__: object) -> None:
        """Write the student's weights, config and tokenizer; sentence-transformers writes the other files.

        :raises InputError: when `safe_serialization` is False, which would write a pickle.
        """
        if not safe_serialization:
            raise InputError("save: safe_serialization is False; leave it out, students are never saved as pickles")
        self.student.save_parts(Path(output_path), self.tokenizer)

    @classmethod
    def load(
        cls,
        model_name_or_path: str,
        subfolder: str = "",
        token: bool | str | None = None,
        cache_folder: str | None = None,
        revision: str | None = None,
        local_files_only: bool = False,
        **_: object,
    ) -> "StudentTransformer":
        """Open a student's folder, local or on the hub, with the parameters that every module takes.

        :raises InputError: when a file of the student is missing.
        """
        options = (subfolder, token, cache_folder, revision, local_files_only)
        files = {name: cls.load_file_path(model_name_or_path, name, *options) for name in STUDENT_FILES}
        missing = [name for name, file in files.items() if file is None]
        if missing:
            raise InputError(f"{model_name_or_path}: no {', '.join(missing)} here; give a student's folder")
        return cls(*Student.load(Path(str(files[STUDENT_FILES[0]])).parent))


StudentModule = StudentTransformer
"""The class name in modules.json of student folders."""


def open_student(folder: str | Path) -> SentenceTransformer:
    """Open a student's folder as a SentenceTransformer, to encode text or to train it further.

    :raises InputError: when the folder does not hold a student.
    """
    model: SentenceTransformer = SentenceTransformer(
        modules=[StudentTransformer.load(str(folder))], similarity_fn_name="cosine"
    )
    return model
