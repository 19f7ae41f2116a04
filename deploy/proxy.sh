#!/usr/bin/env bash
# Opens a SuperLink to nodes, and to nothing else: deploy/proxy.sh KEYS HOST PORT [SUPERLINK_PORT]
# Runs nginx with deploy/nginx.conf on HOST:PORT before the SuperLink of deploy/superlink.sh, until stopped.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
keys="$(cd "$1" && pwd)" host="${2:-127.0.0.1}" port="${3:-8443}" superlink="${4:-8000}"
mkdir -p "$keys/proxy"
sed -e '/^#/d' -e "s|@KEYS@|$keys|g" -e "s|@LISTEN@|$host:$port|g" -e "s|@SUPERLINK@|127.0.0.1:$superlink|g" \
  "$here/nginx.conf" > "$keys/proxy/nginx.conf"
exec nginx -p "$keys/proxy" -c "$keys/proxy/nginx.conf"
