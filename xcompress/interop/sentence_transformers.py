"""A student as a module of sentence-transformers, which finds it through modules.json in the student's folder.

From version 6 on, sentence-transformers imports classes of other packages only when it is told to trust them:
`SentenceTransformer(folder, trust_remote_code=True)`. `open_student` needs no such permission, as the caller names the
class by importing it.

Optimum, too, finds the class there: `optimum-cli export onnx --model <student> <output>` needs no more than that
xcompress is installed. It exports pipelines whose first module is a "Transformer" by name and has a transformers model
as its `auto_model`; hence both here.
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
    """A student and its tokenizer: text in, `token_embeddings` and `sentence_embedding` out.

    :param student: the encoder; its own prefix goes in front of every text that comes without a prompt.
    :param tokenizer: turns text into its token ids.
    """

    def __init__(self, student: Student, tokenizer: Tokenizer) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.auto_model = StudentModel(student, tokenizer)
        self.tokenizer = tokenizer

    @property
    def max_seq_length(self) -> int:
        """How many tokens a text may have; longer ones are cut."""
        return self.student.config.max_tokens

    @max_seq_length.setter
    def max_seq_length(self, tokens: int) -> None:
        config = self.student.config
        longest = config.max_position_embeddings - config.position_offset
        if not 1 <= tokens <= longest:
            raise InputError(f"max_seq_length: {tokens} asked for, the student has {longest} positions; choose fewer")
        self.student.config = replace(config, max_tokens=tokens)

    @property
    def student(self) -> Student:
        """The encoder itself."""
        return self.auto_model.student

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **_: object) -> dict[str, Tensor]:
        """Turn texts into `input_ids` and `attention_mask`, both (N, L).

        :param prompt: text in front of every input, in place of the student's prefix.
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
        """Return D, the length of a sentence vector."""
        return self.student.config.dimension

    def get_sentence_embedding_dimension(self) -> int:
        """Return D; the older name."""
        return self.get_embedding_dimension()

    def get_config_dict(self) -> dict[str, Any]:
        """Return what a printed model shows of this module."""
        config = self.student.config
        return {name: getattr(config, name) for name in ("unit_layers", "recurrences", "dimension", "max_tokens")}

    def save(self, output_path: str, *_: object, safe_serialization: bool = True, **__: object) -> None:
        """Write the student; the files around it are sentence-transformers' own.

        :raises InputError: when asked for a pickle.
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
        """Open a student's folder, here or on the hub; the parameters are those of every module.

        :raises InputError: when a file of the student is missing.
        """
        where = (subfolder, token, cache_folder, revision, local_files_only)
        files = {name: cls.load_file_path(model_name_or_path, name, *where) for name in STUDENT_FILES}
        missing = [name for name, file in files.items() if file is None]
        if missing:
            raise InputError(f"{model_name_or_path}: no {', '.join(missing)} here; give a student's folder")
        return cls(*Student.load(Path(str(files[STUDENT_FILES[0]])).parent))


StudentModule = StudentTransformer
"""The older name, which folders on disk may carry."""


def open_student(folder: str | Path) -> SentenceTransformer:
    """Open a student's folder in sentence-transformers, to encode with it or to train it further.

    :raises InputError: when the folder does not hold a student.
    """
    model: SentenceTransformer = SentenceTransformer(
        modules=[StudentTransformer.load(str(folder))], similarity_fn_name="cosine"
    )
    return model
