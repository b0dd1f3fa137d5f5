"""Quality of learners as a user meets them: untuned, on real streams, beside what one would use instead.

Start with `__main__`, the command. `streams` reads the streams, `contestants` has the learners and their peers,
`scoring` judges the scores.
"""
