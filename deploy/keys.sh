#!/usr/bin/env bash
# Keys and certificates of a deployment: deploy/keys.sh DIR HOSTS NODES
#   DIR    where they are written: ca.crt, server.pem, server.key, node-0 and node-0.pub, …
#   HOSTS  names under which nodes dial the server, as openssl writes them: DNS:fed.example.org,IP:10.0.0.5
#   NODES  how many node keys
# ca.key signs further certificates: keep it off the server. A node gets ca.crt and its own key, nothing else.
set -euo pipefail
dir="$1" hosts="${2:-DNS:localhost,IP:127.0.0.1}" nodes="${3:-3}"
case ",$hosts," in
  *,IP:127.0.0.1,*) ;;
  *) hosts="$hosts,DNS:localhost,IP:127.0.0.1" ;;  # commands and the proxy dial the server on its own machine
esac
umask 077
mkdir -p "$dir"
cd "$dir"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-384 -noenc -days 365 -subj "/CN=fedrecgel CA" \
  -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign,cRLSign" \
  -keyout ca.key -out ca.crt 2>/dev/null
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-384 -noenc -subj "/CN=fedrecgel server" \
  -keyout server.key -out server.csr 2>/dev/null
printf 'subjectAltName=%s\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n' "$hosts" > server.ext
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 90 -extfile server.ext \
  -out server.pem 2>/dev/null
rm server.csr server.ext
for number in $(seq 0 $((nodes - 1))); do
  [ -e "node-$number" ] || ssh-keygen -q -t ecdsa -b 384 -N "" -C "node-$number" -f "node-$number"
done
