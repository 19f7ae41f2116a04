"""Many runs: experiments, planned, carried out and reduced. A new one is one file here and one line in EXPERIMENTS."""

from fedrecgel.studies.ablation import AblationExperiment
from fedrecgel.studies.budgets import PrivacyExperiment
from fedrecgel.studies.experiment import Experiment
from fedrecgel.studies.landscape import LandscapeExperiment
from fedrecgel.studies.main_table import MainTableExperiment
from fedrecgel.studies.quirks import QuirksExperiment
from fedrecgel.studies.sensitivity import SensitivityExperiment

EXPERIMENTS: dict[str, type[Experiment]] = {
    kind.name: kind
    for kind in (
        MainTableExperiment,
        SensitivityExperiment,
        AblationExperiment,
        LandscapeExperiment,
        QuirksExperiment,
        PrivacyExperiment,
    )
}
"""By name, in the order of the help text."""
