"""Shorter texts: the positions that no text reaches any more are left out."""

from dataclasses import replace

import torch

from xcompress.errors import InputError
from xcompress.importing import FEWEST
from xcompress.student import Student

_TABLE = "embeddings.position.weight"


def for_shorter_texts(student: Student, max_tokens: int) -> Student:
    """Return a student of the same weights that cuts texts at `max_tokens` and has positions for no more.

    :raises InputError: when the student cuts them earlier, or no text fits.
    """
    config, state = student.config, student.state_dict()
    if not FEWEST <= max_tokens <= config.max_tokens:
        raise InputError(
            f"max_tokens: {max_tokens} asked for, the student cuts texts at {config.max_tokens}; choose {FEWEST} to "
            f"{config.max_tokens}"
        )
    positions = config.position_offset + max_tokens
    with torch.device("meta"):
        made = Student(replace(config, max_tokens=max_tokens, max_position_embeddings=positions))
    made.load_state_dict({**state, _TABLE: state[_TABLE][:positions]}, assign=True)
    return made.train(student.training)
