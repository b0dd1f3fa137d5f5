"""Other programs at the same job, each a process of its own, started by an interpreter that may have nothing of ours.

So what stands here imports its library and nothing of rarestream, but for rarestream's own entries among the libraries.
"""
