"""The same methods behind Flower: clients live on nodes, one message per node and round.

::

    settings.py   every setting of the section [flower]
    wire.py       Letter: what travels, and the courier that carries it
    shard.py      the users a node hosts, as a folder on its disk
    disk.py       DiskStore: their private state, safe from kills
    node.py       what a node does with a letter: train, rank, introduce itself
    engine.py     FlowerEngine: the server's side of it
    records.py    letters as Flower messages         (imports flwr)
    apps.py       ClientApp, ServerApp, the courier  (imports flwr)
    superlink.py  the processes: a SuperLink of our own, submitting, waiting
"""
