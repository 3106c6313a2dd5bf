"""The arithmetic of lpsim on a GPU, as Triton kernels that are checked against it bit for bit.

A package of its own: it imports lpsim, and nothing in lpsim imports it. Needs the extra `gpu`.
"""
