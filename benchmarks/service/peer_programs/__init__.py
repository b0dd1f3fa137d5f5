"""Other programs for the same job, as separate processes of an interpreter that may not have rarestream.

So what stands here imports its library and nothing of rarestream, but for rarestream's own entries among the libraries.
"""
