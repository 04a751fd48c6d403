"""Graph, target -> plan: storage of every tensor, a kernel for every node, and one arena for all activations."""

from __future__ import annotations

from tflgpu.plan.plan import Destination, EpilogueOperand, Plan, PlannedEpilogueOp, PlannedKernel
from tflgpu.plan.planning import make_plan

__all__ = ["Destination", "EpilogueOperand", "Plan", "PlannedEpilogueOp", "PlannedKernel", "make_plan"]
