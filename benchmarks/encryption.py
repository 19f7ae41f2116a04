"""What encryption costs: seconds and bytes per client for item tables of several sizes, on one thread.

    python benchmarks/encryption.py [--repeats N]

Medians of processor seconds. The last column is not measured: one round of all clients, encryption on the devices and
addition on the server, from the seconds of one client.
"""

from __future__ import annotations

import argparse
from statistics import median

import torch

from fedrecgel.bench.measure import cpu_seconds
from fedrecgel.channels.base import RoundSetup
from fedrecgel.channels.bfv import Encrypted
from fedrecgel.draws import Draws
from fedrecgel.methods.messages import Download, Need, Server, Upload
from fedrecgel.tensors import n_bytes

DIM = 32
TABLES = {"tiny": (100, 20), "demo": (800, 600), "filmtrust": (2_059, 1_227), "amazon-video": (11_830, 8_072)}
"""Items and clients."""


def measure(name: str, repeats: int) -> str:
    """One row."""
    n_items, n_clients = TABLES[name]
    channel, table = Encrypted(), 0.01 * torch.randn(n_items, DIM)
    devices, setup = channel.device(Draws(0)), RoundSetup(0, torch.arange(2), n_items, Need.LINEAR)
    server = devices.seal_server(Server({"items": table}))
    at = torch.arange(min(100, n_items))[None]
    upload = Upload(torch.zeros(1).long(), {}, {"items": 0.01 * torch.randn(1, at.shape[1], DIM)}, at, torch.ones(1))
    sealed = [devices.seal(upload, setup) for _ in range(2)]
    total = channel.server().collect(sealed, setup).total()["items"]  # also loads what torch loads once

    encrypt = median(cpu_seconds(lambda: devices.seal(upload, setup)) for _ in range(repeats))
    decrypt = median(cpu_seconds(lambda: devices.open_download(Download(server.shared))) for _ in range(repeats))
    add = median(cpu_seconds(lambda: total + total) for _ in range(repeats))
    step = median(cpu_seconds(lambda: server.shared["items"] - 0.3 * total) for _ in range(repeats))
    size, plain = n_bytes(server.shared), table.numel() * table.element_size()
    blocks = len(server.shared["items"].parts)  # type: ignore[attr-defined]
    round_seconds = n_clients * (encrypt + add)
    return (
        f"{name:<14}{n_items:>7,}{blocks:>7}{1e3 * encrypt:>9.1f}{1e3 * decrypt:>9.1f}{1e3 * add:>8.2f}"
        f"{1e3 * step:>8.2f}{size / 1e6:>8.2f}{size / plain:>8.1f}{round_seconds:>10.1f}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=21)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    print(f"{'d = 32':<14}{'items':>7}{'blocks':>7}{'enc ms':>9}{'dec ms':>9}{'add ms':>8}{'step ms':>8}", end="")
    print(f"{'MB':>8}{'times':>8}{'round s*':>10}")
    for name in TABLES:
        print(measure(name, repeats), flush=True)
    print("* extrapolated: all clients of the data set, one after another")


if __name__ == "__main__":
    main()
