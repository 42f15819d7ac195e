"""The patcher's public interface, and the only one that the rest of ddpfix uses."""

from .analysis.ranks.joined_processes import joins_processes
from .analysis.settings.added_lengths import added_lengths
from .analysis.settings.constant_settings import constant_batch
from .analysis.settings.flag_roles import FlagRole, divides_batch, flag_roles
from .analysis.settings.pretrained_models import PretrainedModel, UnknownModel, pretrained_model
from .analysis.training.load import read_modernized, read_program
from .analysis.training.program import Program
from .capabilities import Capability, all_capabilities, select_capabilities
from .capabilities.flags import Flag
from .codes import split_codes
from .editing.text_edits import TextEdit, text_edits
from .engine.check import check, select_rules
from .engine.patch import FileChange, Patch, patch
from .engine.rule_fixes import RuleFixes
from .findings import Finding, Safety, Severity
from .frontend.config import Config, read_config
from .frontend.diagnostics import Diagnostic, diagnose
from .frontend.discover import is_left_out
from .frontend.manuals import manual
from .frontend.output import concise
from .frontend.word_completion import manual_names
from .rules import all_rules
from .source.files import decode

__all__ = [
    "Capability",
    "Config",
    "Diagnostic",
    "FileChange",
    "Finding",
    "Flag",
    "FlagRole",
    "Patch",
    "PretrainedModel",
    "Program",
    "RuleFixes",
    "Safety",
    "Severity",
    "TextEdit",
    "UnknownModel",
    "added_lengths",
    "all_capabilities",
    "all_rules",
    "check",
    "concise",
    "constant_batch",
    "decode",
    "diagnose",
    "divides_batch",
    "flag_roles",
    "is_left_out",
    "joins_processes",
    "manual",
    "manual_names",
    "patch",
    "pretrained_model",
    "read_config",
    "read_modernized",
    "read_program",
    "select_capabilities",
    "select_rules",
    "split_codes",
    "text_edits",
]
