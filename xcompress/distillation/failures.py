"""Failures of the machine during a run, each as one line that says how to go on: a full disk, a lost worker."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from xcompress.distillation import distributed
from xcompress.errors import XCompressError, on_one_line
from xcompress.files import is_disk_full

_NETWORK_TEXTS = re.compile(r"gloo|NCCL|TCPStore|Connection (closed|reset|refused)", re.IGNORECASE)
"""What torch.distributed says where another process has ended, and its error has no class of its own."""
GO_ON = "run the same command again: it goes on at the last checkpoint"


@contextmanager
def explain_failures(folder: Path) -> Iterator[None]:
    """Turn what a full disk or a lost worker raises inside the block into an error of one line.

    :param folder: the run folder.
    :raises XCompressError: in place of such an error; all others pass.
    """
    try:
        yield
    except XCompressError:
        raise
    except Exception as error:
        if any(map(is_disk_full, _causes(error))):
            file = getattr(error, "filename", None)
            raise XCompressError(
                f"{file or folder}: cannot be written, as the disk or quota is full ({on_one_line(error, 150)}); free "
                f"space, then {GO_ON}"
            ) from error
        if distributed.world_size() > 1 and any(map(_is_of_network, _causes(error))):
            raise XCompressError(
                f"worker {distributed.rank()} of {distributed.world_size()}: another worker has ended or cannot be "
                f"reached ({on_one_line(error, 150)}); see its own message, then {GO_ON}"
            ) from error
        raise


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those that it was raised from or after."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_of_network(error: BaseException) -> bool:
    if isinstance(error, torch.distributed.DistError):
        return True
    return isinstance(error, RuntimeError | ConnectionError) and bool(_NETWORK_TEXTS.search(str(error)))
