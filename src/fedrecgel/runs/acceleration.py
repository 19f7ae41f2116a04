"""What `local.accelerate = "auto"` means for a run: decided once, before its config.toml is written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace

import torch

from fedrecgel.data.split import Split
from fedrecgel.engine.economies import kernel_for
from fedrecgel.models.kernels.compiler import Recipe, build_aside, compiler, gains, library, state_of
from fedrecgel.runs.config import Config
from fedrecgel.runs.folder import RunFolder
from fedrecgel.runs.settings import read_settings

VARIABLE = "FEDRECGEL_ACCELERATE"
"""Set to false in the environment, "auto" takes no kernel."""
LONG = 5_000_000
"""Examples trained in a run above which it gains more than a compiler takes: some 20 s of processor time."""


def settle(
    config: Config,
    split: Split | None,
    folder: RunFolder | None = None,
    *,
    resume: bool = False,
    say: Callable[[str], None] = lambda sentence: None,
) -> Config:
    """The config with true or false in the place of "auto"; a run that goes on keeps what it has.

    A kernel that is built is used. One that is not is built at once for a run that gains by it. For a shorter one it
    is built aside, for the next: waiting for it would take longer than it saves.
    """
    if config.local.accelerate != "auto":
        return config
    if resume and folder is not None and folder.config.exists():
        kept = read_settings(folder.config).get("local", {}).get("accelerate", False)
        return _with(config, kept is True)
    kernel = _kernel(config)
    if split is None or kernel is None or not _wanted() or (state := state_of(kernel)) == "failed":
        return _with(config, False)
    if state == "new":
        if _n_examples(config, split) < LONG:
            say("A kernel that trains faster is compiled aside, for the next run (local.accelerate).")
            build_aside(kernel)
            return _with(config, False)
        say("Compiling a kernel for this model, once: some seconds (local.accelerate).")
    found = library(kernel) is not None
    say(
        "Training through a compiled kernel (local.accelerate = true)."
        if found
        else "The kernel does not compile here."
    )
    return _with(config, found)


def prepare(configs: Iterable[Config]) -> None:
    """Compile what many runs need before the first of them: all should take the same path."""
    if _wanted():
        for kernel in dict.fromkeys(_kernel(config) for config in configs if config.local.accelerate == "auto"):
            library(kernel)


def _wanted() -> bool:
    return os.environ.get(VARIABLE, "true").lower() != "false" and compiler() is not None and gains()


def _kernel(config: Config) -> Recipe | None:
    """Nodes elsewhere may have no compiler: there "auto" means false."""
    if config.run.engine == "flower" and config.flower.superlink is not None:
        return None
    dtype, device = getattr(torch, config.run.dtype), torch.device(config.run.device)
    return kernel_for(config.method.build(), config.channel(), dtype, device)


def _n_examples(config: Config, split: Split) -> float:
    """In all rounds together, as far as that can be told beforehand."""
    method = config.method.build()
    a_round = len(split.interactions.items) * (1 + config.sampling.negatives) * method.fraction
    return a_round * config.run.rounds


def _with(config: Config, accelerate: bool) -> Config:
    return replace(config, local=replace(config.local, accelerate=accelerate))
