"""A student as a model of transformers, for libraries that expect one inside a sentence-transformers model.

Opening it needs xcompress. `xcompress.export.hf` writes a student as a checkpoint that does not.
"""

import os
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from torch import Tensor
from transformers import BertConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from xcompress.export.folder import transformers_config, write_tokenizer
from xcompress.modeling.student import Student, StudentConfig

_NOT_SAVED = ("student", "tokenizer")


class UnrolledConfig(BertConfig):
    """The config of the BERT that a student is after unrolling; saving it also saves the student's tokenizer.

    Optimum saves the config beside the graph that it exports, but gets no tokenizer from AutoTokenizer.
    """

    student: StudentConfig | None = None
    tokenizer: Tokenizer | None = None

    @classmethod
    def of(cls, student: StudentConfig, tokenizer: Tokenizer) -> "UnrolledConfig":
        """Make the config of a student."""
        config = cls(**transformers_config(student))
        config.student, config.tokenizer = student, tokenizer
        return config

    def to_dict(self) -> dict[str, Any]:
        """Return the values for config.json."""
        return {name: value for name, value in super().to_dict().items() if name not in _NOT_SAVED}

    def save_pretrained(self, save_directory: str | os.PathLike[str], *_: object, **options: Any) -> None:  # noqa: ANN401
        """Write config.json and the tokenizer's files."""
        super().save_pretrained(save_directory, **options)
        if self.student is not None and self.tokenizer is not None:
            write_tokenizer(Path(save_directory), self.tokenizer, self.student)


class StudentModel(PreTrainedModel):  # type: ignore[no-untyped-call]
    """A student as a model of transformers; both share their parameters.

    :param student: the encoder.
    :param tokenizer: saved together with the model's config.
    """

    config_class = UnrolledConfig
    main_input_name = "input_ids"

    def __init__(self, student: Student, tokenizer: Tokenizer) -> None:
        super().__init__(UnrolledConfig.of(student.config, tokenizer))
        self.student = student

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **_: object) -> BaseModelOutput:
        """Return the token vectors (N, L, D) of token ids and attention mask (N, L)."""
        return BaseModelOutput(last_hidden_state=self.student(input_ids, attention_mask)[0])
