"""What happens to an upload on its way from a device to the server.

::

    base.py       Channel and its two halves; plain
    sums.py       what arrives, added up
    chain.py      a channel made of stages
    secagg.py     sums under masks; masking.py is the protocol, with masks.py, shares.py and neighbours.py
    bfv.py        ciphertexts; with ciphertexts.py
    dp.py         noise and a budget; with clipping.py, accounting.py, budget.py and noise_shares.py
    fixedpoint.py numbers as integers
    registry.py   channels by name
"""
