"""Train what a config describes: its data, its folder, one `Training` and its result."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from fedrecgel.data.load import load_data
from fedrecgel.data.protocols import make_split
from fedrecgel.data.split import Split
from fedrecgel.data.whole import hold_nothing_out
from fedrecgel.runs.acceleration import settle
from fedrecgel.runs.config import Config, check_device
from fedrecgel.runs.continued import find_start
from fedrecgel.runs.folder import RunFolder
from fedrecgel.runs.host import Hosting
from fedrecgel.runs.result import Result
from fedrecgel.runs.training import Line, Training
from fedrecgel.storage import write_text


def load_split(config: Config) -> Split:
    """The split a config describes."""
    if config.run.final:
        return hold_nothing_out(load_data(config.data), config.split)
    return make_split(load_data(config.data), config.split)


def train_config(
    config: Config,
    split: Split | None = None,
    folder: RunFolder | None = None,
    *,
    resume: bool = False,
    watch: Callable[[Line], None] = lambda line: None,
    should_stop: Callable[[], bool] = lambda: False,
    host: Hosting | None = None,
    begin: Callable[[], object] = lambda: None,
    start: Result | None = None,
    say: Callable[[str], None] = lambda sentence: None,
    ranked: Callable[[int, int], None] = lambda done, clients: None,
    complete: Callable[[Result], Result] = lambda result: result,
) -> Result:
    """Train what a config describes, in a run folder if one is given.

    Args:
        config: every setting.
        split: the data, if it is loaded already.
        folder: where to write; None keeps everything in memory.
        resume: continue from the folder's checkpoint.
        watch: called after every round.
        should_stop: asked after every round; when true, a checkpoint is written and Interrupted raised.
        host: where the clients live; in this process unless given.
        begin: called once the folder is ours and locked, before anything is written to it.
        start: the run to go on from, if it is opened already; else it is read from `run.start`.
        say: told what is known and what is new to the run to go on from.
        ranked: hears of how many clients, of how many, the whole catalogue is ranked.
        complete: has the last word on the result before it is written.
    """
    check_device(config)
    config, start = find_start(config, start)
    if folder is not None:
        folder.claim_unfinished(config.to_dict(), resume=resume)
    split = split or load_split(config)
    config = settle(config, split if host is None else None, folder, resume=resume, say=say)
    training = Training(config, split, folder, host, start, ranked)
    for sentence in training.continued.sentences if training.continued else []:
        say(sentence)
    with folder.lock() if folder is not None else nullcontext():
        if folder is not None:  # again: another process may have had it since
            folder.claim_unfinished(config.to_dict(), resume=resume)
        begin()
        if resume:
            training.restore()
        elif folder is not None:
            write_text(folder.config, config.to_toml())
        training.fit(watch, should_stop)
        result = complete(training.finish())
        if folder is not None:
            result.write_model(folder)
        return result
