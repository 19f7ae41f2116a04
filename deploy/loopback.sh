#!/usr/bin/env bash
# A whole deployment on one machine, with TLS and node keys: deploy/loopback.sh DIR [DATASET] [PORT] [NODES]
# Makes keys and shards in DIR if there are none, starts the server and the nodes, and ends them all with Ctrl-C.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
dir="$1" dataset="${2:-demo}" port="${3:-8000}" nodes="${4:-3}"
mkdir -p "$dir"
[ -e "$dir/keys/ca.crt" ] || "$here/keys.sh" "$dir/keys" DNS:localhost,IP:127.0.0.1 "$nodes"
[ -d "$dir/shards" ] || fedrecgel data shard "$dataset" --nodes "$nodes" --out "$dir/shards"
[ -e "$dir/policy.toml" ] || fedrecgel node policy --peers "$dir"/keys/node-*.pub > "$dir/policy.toml"
started=()
trap 'kill -TERM "${started[@]}" 2>/dev/null; wait' EXIT
trap 'exit 0' INT TERM
"$here/superlink.sh" "$dir/keys" 127.0.0.1 "$port" > "$dir/superlink.log" 2>&1 &
started+=($!)
until grep -q "is ready" "$dir/superlink.log"; do
  kill -0 "${started[0]}" || { cat "$dir/superlink.log"; exit 1; }
  sleep 0.2
done
for number in $(seq 0 $((nodes - 1))); do
  fedrecgel node --shard "$dir/shards/node-$number" --superlink "127.0.0.1:$port" --certificate "$dir/keys/ca.crt" \
    --key "$dir/keys/node-$number" --policy "$dir/policy.toml" > "$dir/node-$number.log" 2>&1 &
  started+=($!)
done
echo "Ready. In another terminal:"
echo "  fedrecgel train --engine flower --set flower.superlink=127.0.0.1:$port --set flower.certificate=$dir/keys/ca.crt \\"
echo "    --set flower.nodes=$nodes --rounds 3 --dataset $dataset --set method.fraction=0.2 --out runs/deployed"
wait
