"""Matrix products on tensor cores: convolutions, fully connected layers, and products of activations.

There is a skeleton of template for each way of operands: from memory to registers, or shared in local memory. A module
here is a loader, which extends a skeleton: where operands come from, and the tiles and the work that this gives.
"""
