#!/usr/bin/env bash
# The server of a deployment, with TLS, known nodes only, telemetry off: deploy/superlink.sh KEYS HOST PORT
# Every node-*.pub in KEYS is registered. State that must survive a restart is in KEYS/superlink.db.
set -euo pipefail
keys="$(cd "$1" && pwd)" host="${2:-127.0.0.1}" port="${3:-8000}"
export FLWR_HOME="$keys/flower" FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 \
  FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1
mkdir -p "$FLWR_HOME"
cat > "$FLWR_HOME/config.toml" <<END
[superlink]
default = "link"
[superlink.link]
address = "127.0.0.1:$port"
root-certificates = "$keys/ca.crt"
END
flower-superlink --host "$host" --port "$port" --ssl-ca-certfile "$keys/ca.crt" --ssl-certfile "$keys/server.pem" \
  --ssl-keyfile "$keys/server.key" --enable-supernode-auth --disable-runtime-dependency-installation \
  --database "$keys/superlink.db" &
server=$!
trap 'kill -TERM $server 2>/dev/null; wait $server' EXIT
trap 'exit 0' INT TERM
until curl -sf --cacert "$keys/ca.crt" "https://127.0.0.1:$port/health" > /dev/null; do
  kill -0 $server
  sleep 0.2
done
for key in "$keys"/node-*.pub; do
  flwr supernode register "$key" link > /dev/null 2>&1 || true  # a key that is registered already stays so
done
echo "SuperLink is ready on $host:$port; nodes need $keys/ca.crt and one of its node keys"
wait $server
