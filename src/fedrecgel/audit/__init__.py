"""Attacks on what a channel reveals, and tests of what it promises.

::

    scene.py      a run set up to be watched: what the server sees of clients and of cohorts
    guesses.py    how good a guess at histories is, beside one from popularity alone
    inference.py  histories from single uploads and from sums
    replay.py     negatives again, from the seed
    spectral.py   histories from sums of spectra
    noise.py      canaries, and the size of noise
    promotion.py  clients that push an item
    verdict.py    all of it, in numbers and in a sentence
    record.py     the same as a file beside the run
"""
