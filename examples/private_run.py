"""Training on encrypted uploads: the server adds ciphertexts and never reads one.

Run `python examples/private_run.py`; it needs the extra `crypto`. FedMF's server only adds and scales, so it works on
ciphertexts as it does on numbers. A method whose server must see more is refused before anything is sent.
"""

import fedrecgel as fr
from fedrecgel.data.synthetic import generate
from fedrecgel.errors import PrivacyError

split = generate(n_users=20, n_items=100, n_interactions=200).split(candidates=50)
found = {channel: fr.train("fedmf", split, rounds=2, lr=0.5, run={"channel": channel}) for channel in ("plain", "bfv")}
for channel, result in found.items():
    print(f"{channel:<6}HR@10 {100 * result.metrics['HR@10']:5.2f}  NDCG@10 {100 * result.metrics['NDCG@10']:5.2f}")

tables = [result.shared["items"] for result in found.values()]
print(f"the item tables differ by at most {(tables[0] - tables[1]).abs().max():.1e}: rounding of the encryption")

try:
    fr.train("fedrecgel", split, rounds=1, run={"channel": "bfv"})
except PrivacyError as error:
    print(f"refused: {error}")
