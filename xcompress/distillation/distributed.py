"""The worker processes of a run under torchrun or `accelerate launch`; a single one without a launcher."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache, partial
from itertools import chain, zip_longest
from typing import Any, TypeVar

import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from torch import Tensor

from xcompress.errors import InputError, XCompressError

Item = TypeVar("Item")
TIMEOUT = timedelta(hours=12)
"""How long a process waits for another, which may be reading a large corpus."""
NOT_SUPPORTED = {
    "ACCELERATE_USE_FSDP": "FSDP",
    "ACCELERATE_USE_DEEPSPEED": "DeepSpeed",
    "ACCELERATE_USE_MEGATRON_LM": "Megatron-LM",
}
"""Variables that `accelerate launch` sets for what cuts a model into parts, and its names."""


@cache
def workers() -> PartialState:
    """Return the process group: gloo on CPUs, NCCL on GPUs.

    :raises InputError: when `accelerate config` has set up what cuts a model into parts.
    """
    for variable, name in NOT_SUPPORTED.items():
        if os.environ.get(variable, "").lower() in ("1", "true", "yes"):
            raise InputError(
                f"accelerate: {name} is set up ({variable}), but every worker here holds the whole model; answer no to "
                f"{name} in `accelerate config`, or start with torchrun"
            )
    if not torch.cuda.is_available():
        # Otherwise it is cpu:0 for several processes, and torch.load reads no checkpoint to that device. The Trainer
        # makes the state again, so a variable has to say it.
        os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
    return PartialState(cpu=not torch.cuda.is_available(), timeout=TIMEOUT)


def world_size() -> int:
    """Return the number of processes."""
    return int(workers().num_processes)


def rank() -> int:
    """Return the number of this process, from 0."""
    return int(workers().process_index)


def is_main() -> bool:
    """Return whether this is the main process, which writes the run folder."""
    return bool(workers().is_main_process)


@cache
def hosts() -> list[int]:
    """Return the number of the first process of each host. All processes must call it."""
    is_first = all_gather_object(bool(workers().is_local_main_process))
    return [process for process, first in enumerate(is_first) if first]


def barrier() -> None:
    """Wait until every process has called this."""
    workers().wait_for_everyone()


def all_gather_object(value: Item) -> list[Item]:
    """Return the values of all processes, that of the main one first. All must call it."""
    return list(gather_object([value])) if world_size() > 1 else [value]


@contextmanager
def own_work() -> Iterator[None]:
    """Let a worker name itself in an error of what it does alone: the others do not raise the same one.

    :raises XCompressError: in place of an InputError, which the main process prints for all.
    """
    try:
        yield
    except InputError as error:
        if world_size() == 1:
            raise
        raise XCompressError(f"worker {rank()} of {world_size()}: {error}") from error


def in_turns(items: Iterator[Item]) -> Iterator[Item]:
    """Yield the first item of each host, then the second of each, and so on; in the main process only.

    The first process of each other host calls `send`. An item is sent once the main process waits for it.

    :param items: of this host.
    """
    others = (iter(partial(_receive, host), None) for host in hosts()[1:])
    for turn in zip_longest(items, *others):
        yield from (item for item in turn if item is not None)


def send(items: Iterator[Item]) -> None:
    """Send the items of this host to the main process, which calls `in_turns`. None of them may be None."""
    for item in chain(items, [None]):
        torch.distributed.send_object_list([item], dst=0, device=workers().device)


def _receive(host: int) -> Any:  # noqa: ANN401
    values = [None]
    torch.distributed.recv_object_list(values, src=host, device=workers().device)
    return values[0]


def all_gather(rows: Tensor) -> Tensor:
    """Stack the rows (n, ...) of all processes, so that each can compute the loss of the whole batch.

    Gradients flow to the rows of this process only, multiplied by the number of processes: DistributedDataParallel
    takes the mean over processes, which then is the gradient of the whole batch.
    """
    if world_size() == 1:
        return rows
    values = rows.detach()
    gathered = [torch.empty_like(values) for _ in range(world_size())]
    torch.distributed.all_gather(gathered, values.contiguous())
    gathered[rank()] = values + world_size() * (rows - values)
    return torch.cat(gathered)
