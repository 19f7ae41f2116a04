"""The checkpoint of a run folder, if a run can go on from it."""

from __future__ import annotations

from fedrecgel.engine.checkpoint import Checkpoint
from fedrecgel.errors import RunFolderError
from fedrecgel.runs.config import Config
from fedrecgel.runs.folder import RunFolder


def read_resumable(folder: RunFolder, config: Config, fingerprint: str) -> Checkpoint | None:
    """The checkpoint; None if the run was killed before its first one.

    Raises:
        RunFolderError: it cannot be continued with this config.
    """
    if not folder.checkpoint.exists():
        return None
    saved = Checkpoint.read(folder.checkpoint)
    rounds, every = config.run.rounds, config.evaluation.every
    if saved.run != fingerprint:
        raise RunFolderError(
            f"'{folder.checkpoint}' belongs to another run or other data, or was written by an earlier version, "
            f"whose runs cannot be continued. Choose another --out."
        )
    if saved.round > rounds:
        raise RunFolderError(
            f"'{folder.path}' has {saved.round} rounds already, more than the {rounds} asked for. "
            f"Ask for more, or choose another --out."
        )
    if saved.best_round is not None and saved.best_round % every and saved.round < rounds:
        raise RunFolderError(
            f"'{folder.path}' selected round {saved.best_round}, its last, "
            f"which a longer run does not evaluate. Choose another --out."
        )
    return saved
