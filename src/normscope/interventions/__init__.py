"""Interventions on embedding norms, for any nn.Module or tensor, with any loss or method."""

from normscope.interventions.cut_init import cut_init_
from normscope.interventions.grad_scale import GradScale, grad_scale
from normscope.interventions.probes import scale_invariant_parameters, suggest_cut

__all__ = ["GradScale", "cut_init_", "grad_scale", "scale_invariant_parameters", "suggest_cut"]
