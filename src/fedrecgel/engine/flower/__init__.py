"""The same methods behind Flower: clients live on nodes, one message per node and round.

::

    settings.py   every setting of the section [flower]
    wire.py       Letter: what travels, and the courier that carries it
    shard.py      the users a node hosts, as a folder on its disk
    disk.py       DiskStore: their private state, safe from kills
    policy.py     what a node does for a server, decided on the node
    ledger.py     which letters it answered lately: budgets that survive restarts
    node.py       what a node does with a letter: train, rank, introduce itself
    secret.py     what a node's own numbers come from
    outgoing.py   what leaves a node
    exchange.py   what a node keeps secret between an exchange and the training that follows
    bindings.py   which key hosts whom, remembered with the run
    rests.py      pauses of nodes that were silent
    roster.py     which node hosts whom
    asking.py     letters to nodes, and which answers count
    engine.py     FlowerEngine: the server's side of a round
    scales.py     what an answer weighs, before Flower unpacks it
    waits.py      where Flower waits, and for how long
    supernode.py  Flower's processes on a node: they run the installed app, start warm, wait less
    apps.py       letters as messages, ClientApp, ServerApp; the only file that imports flwr
    processes.py  Flower's commands as processes of ours
    simulation.py nodes as threads of one process
    superlink.py  submitting to a running SuperLink
"""
