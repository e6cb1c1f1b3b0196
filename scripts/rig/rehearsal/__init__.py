"""The rehearsal: the whole launch path of a four-card rig, on a machine with no GPU.

A tiny model with seeded random weights is served by the built engine and asked about a real
photograph; Hugging Face transformers, given the same weights, is the oracle of the answer.
"""
