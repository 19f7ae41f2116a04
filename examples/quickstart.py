"""From a table of clicks to recommendations: split, train, compare, look at one user.

Run `python examples/quickstart.py`. With your own data: `fr.Interactions.from_frame(frame)`, where `frame` is a pandas,
polars or Arrow table with columns user and item, and timestamp if there is one.
"""

import fedrecgel as fr

data = fr.load("demo")
split = data.split(seed=0)  # one item of each user is held out, with 99 others to rank it among

result = fr.train("fedrecgel", split, rounds=50)
for name, metrics in (("popularity", result.reference["popularity"]), ("fedrecgel", result.metrics)):
    print(f"{name:<12}" + "  ".join(f"{metric} {100 * value:5.2f}" for metric, value in metrics.items()))

user = data.user_ids[0]
print(f"user {user} might like " + ", ".join(str(found.item) for found in result.recommend(user, k=5)))
