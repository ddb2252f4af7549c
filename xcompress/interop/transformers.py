"""The student behind the interface of transformers, which other libraries look for in a sentence-transformers model.

This needs xcompress to be opened; xcompress.export.hf writes a student as a model that does not.
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

_OURS = ("student", "tokenizer")


class UnrolledConfig(BertConfig):
    """The BERT that a student is once unrolled; where this is saved, the student's tokenizer is saved, too.

    Optimum saves it beside the graph that it exports, and looks for a tokenizer where AutoTokenizer finds none.
    """

    student: StudentConfig | None = None
    tokenizer: Tokenizer | None = None

    @classmethod
    def of(cls, student: StudentConfig, tokenizer: Tokenizer) -> "UnrolledConfig":
        """Describe a student."""
        config = cls(**transformers_config(student))
        config.student, config.tokenizer = student, tokenizer
        return config

    def to_dict(self) -> dict[str, Any]:
        """Return what belongs into config.json."""
        return {name: value for name, value in super().to_dict().items() if name not in _OURS}

    def save_pretrained(self, save_directory: str | os.PathLike[str], *_: object, **options: Any) -> None:  # noqa: ANN401
        """Write config.json and the tokenizer's files."""
        super().save_pretrained(save_directory, **options)
        if self.student is not None and self.tokenizer is not None:
            write_tokenizer(Path(save_directory), self.tokenizer, self.student)


class StudentModel(PreTrainedModel):  # type: ignore[no-untyped-call]
    """A student as a model of transformers: its parameters are the student's.

    :param student: the encoder.
    :param tokenizer: goes with it where the model's configuration is saved.
    """

    config_class = UnrolledConfig
    main_input_name = "input_ids"

    def __init__(self, student: Student, tokenizer: Tokenizer) -> None:
        super().__init__(UnrolledConfig.of(student.config, tokenizer))
        self.student = student

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **_: object) -> BaseModelOutput:
        """Map token ids and mask (N, L) to token vectors (N, L, D)."""
        return BaseModelOutput(last_hidden_state=self.student(input_ids, attention_mask)[0])
