"""`torch.nn` layers, one a member: projections, short convolution, gates, recurrence, norm, output.

Every layer maps `[B, T, width]` to the same shape and returns its state beside it, which the next call
may start from; with `cu_seqlens` one row holds several sequences, each with a state of its own.
`LAYERS` finds a layer by the name of its member.
"""

from gated_recurrence.layers.delta import GDN2, KDA, DeltaNet, GatedDeltaNet
from gated_recurrence.layers.linear import GLA, LinearAttention, Retention, SimpleGLA
from gated_recurrence.layers.mixer import Mixer
from gated_recurrence.layers.packing import State
from gated_recurrence.layers.rwkv import RWKV7

LAYERS: dict[str, type[Mixer]] = {
    "linear_attention": LinearAttention,
    "retention": Retention,
    "simple_gla": SimpleGLA,
    "gla": GLA,
    "delta_rule": DeltaNet,
    "gated_delta_rule": GatedDeltaNet,
    "kda": KDA,
    "gated_delta_rule_2": GDN2,
    "rwkv7": RWKV7,
}

__all__ = [
    "GDN2",
    "GLA",
    "KDA",
    "LAYERS",
    "RWKV7",
    "DeltaNet",
    "GatedDeltaNet",
    "LinearAttention",
    "Mixer",
    "Retention",
    "SimpleGLA",
    "State",
]
