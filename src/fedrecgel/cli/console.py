"""What an experiment says while it is planned and run."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from fedrecgel.methods import method_label
from fedrecgel.studies.plan import Job, Plan, estimate, probe
from fedrecgel.studies.records import ResultsLog
from fedrecgel.studies.tasks import split_of
from fedrecgel.studies.workers import Outcome


@dataclass
class Console:
    """One line per finished run, with the time that is left."""

    total: int
    jobs: int
    quiet: bool
    done: int = 0
    failed: int = 0
    spent: float = 0.0

    def restart(self, total: int) -> None:
        """Count other tasks from here."""
        self.total, self.done, self.spent = total, 0, 0.0

    def say(self, text: str) -> None:
        """One line on stderr."""
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def watch(self, outcome: Outcome) -> None:
        """Say what became of a task."""
        self.done += outcome.status != "interrupted"
        self.failed += outcome.status == "failed"
        self.spent += outcome.seconds
        left = (self.total - self.done) * self.spent / max(1, self.done) / self.jobs
        remark = {"finished": f"{outcome.seconds:.1f} s", "interrupted": "stopped, will be continued"}
        text = remark.get(outcome.status, f"FAILED: {outcome.message}")
        self.say(f"[{self.done}/{self.total}] {outcome.task.label}: {text}; about {duration(left)} left")


def describe_plan(plan: Plan, jobs: int) -> str:
    """How many runs, how many finished, how long the rest may take by what earlier runs took."""
    missing = plan.missing
    text = f"{len(plan.jobs)} runs, {len(plan.jobs) - len(missing)} of them finished before."
    if missing:
        guess = estimate(missing, ResultsLog(plan.root).read().values())
        text += f" The rest takes about {duration(guess.seconds / jobs)}" if guess.seconds else ""
        if guess.unknown:
            known = ", not counting" if guess.seconds else " Not timed yet:"
            text += f"{known} {', '.join(guess.unknown)}"
        text += "."
    return text


def probed_plan(plan: Plan, jobs: int) -> str:
    """The plan in a table, timed by the first rounds of each method on each data set."""
    groups: dict[tuple[str, str], list[Job]] = {}
    for job in plan.missing:
        groups.setdefault((job.config.data.name, job.config.method.name), []).append(job)
    lines, total = [f"{'data set':<22}{'method':<16}{'runs':>6}{'rounds':>10}{'s per run':>12}"], 0.0
    for (dataset, method), jobs_of in groups.items():
        config = jobs_of[0].config
        found = probe(jobs_of[0], split_of(config.data, config.split))
        total += (found or 0.0) * len(jobs_of)
        shown = "failed" if found is None else f"{found:.1f}"
        rounds = "/".join(str(count) for count in sorted({job.config.run.rounds for job in jobs_of}))
        lines.append(f"{dataset:<22}{method_label(method):<16}{len(jobs_of):>6}{rounds:>10}{shown:>12}")
    return "\n".join([*lines, f"about {duration(total)} on one process, {duration(total / jobs)} with --jobs {jobs}"])


def duration(seconds: float) -> str:
    """Seconds for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
