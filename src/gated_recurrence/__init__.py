"""The gated-linear-recurrence family: exact forward and backward, one shared core."""

from gated_recurrence.delta_rule import delta_rule
from gated_recurrence.gated_delta_rule import gated_delta_rule
from gated_recurrence.gated_delta_rule_2 import gated_delta_rule_2
from gated_recurrence.gla import gla
from gated_recurrence.kda import kda
from gated_recurrence.linear_attention import linear_attention
from gated_recurrence.retention import retention
from gated_recurrence.rwkv7 import rwkv7
from gated_recurrence.simple_gla import simple_gla

__all__ = [
    "delta_rule",
    "gated_delta_rule",
    "gated_delta_rule_2",
    "gla",
    "kda",
    "linear_attention",
    "retention",
    "rwkv7",
    "simple_gla",
]
