#!/usr/bin/env bash
# `npm run check:image`: builds the image with buildah, without a daemon, and checks it as a pod would see it. In place of
# the base image it uses one made of this machine's own Node. Run it by hand, as root on Linux. It fetches the packages of
# the lock file. Needs: buildah, setpriv, unshare, openssl, curl.
set -euo pipefail
cd "$(dirname "$0")/../.."

for tool in buildah setpriv unshare openssl curl; do
  command -v "$tool" >/dev/null || { echo "$tool is not installed: nothing was checked" >&2; exit 1; }
done
[ "$(id -u)" = 0 ] || { echo 'not root: nothing was checked' >&2; exit 1; }

work=$(mktemp -d)
image=docker.io/library/node:24-bookworm-slim
build() { buildah --storage-driver vfs --root "$work/store" --runroot "$work/run" "$@"; }
clean() {
  build umount --all >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap clean EXIT

failed=0
ok() { echo "ok: $1"; }
not_ok() { echo "FAILED: $1"; failed=$((failed + 1)); }
expect() { if grep -qE -- "$2" <<<"$3"; then ok "$1"; else not_ok "$1: $3"; fi; }

echo "== stand-in base: Node $(node --version) of this machine"
base=$(build from scratch)
root=$(build mount "$base")
put() { # copies a file into the base image, to the same path; copies the target in place of a symbolic link
  mkdir -p "$root$(dirname "$1")"
  cp -L "$1" "$root$1"
}
mkdir -p "$root"/{tmp,proc,dev,root,usr/bin,usr/lib} && chmod 1777 "$root/tmp"
for name in node sh env mkdir chown rm cat setpriv prlimit; do
  file=$(command -v "$name")
  cp -L "$file" "$root/usr/bin/$name"
  for library in $(ldd "$file" | grep -oE '/[^ ]+'); do put "$library"; done
done
ln -s usr/bin "$root/bin"
npm=$(dirname "$(dirname "$(readlink -f "$(command -v npm)")")")
mkdir -p "$root/usr/lib/node_modules" && cp -r "$npm" "$root/usr/lib/node_modules/npm"
ln -s ../lib/node_modules/npm/bin/npm-cli.js "$root/usr/bin/npm"
# The parts of the C library that programs load by name: each Debian image has them.
for library in librt.so.1 libresolv.so.2; do put "$(ldconfig -p | grep -oE "/[^ ]*/$library" | head -n 1)"; done
put /etc/ssl/certs/ca-certificates.crt
printf 'root:x:0:0::/root:/bin/sh\nnode:x:1000:1000::/home/node:/bin/sh\n' >"$root/etc/passwd"
build umount "$base" >/dev/null
build config --env PATH=/usr/bin --env NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt "$base"
build commit --quiet "$base" "$image" >/dev/null

echo '== the Dockerfile'
build build --pull-never --isolation chroot --format docker --quiet --build-arg REVISION=check --tag merchant-gateway . >/dev/null
container=$(build from --pull-never merchant-gateway)
root=$(build mount "$container")
echo "what is added to the base: $(du -sm "$root/app" | cut -f1) MiB ($(du -sm "$root/app/node_modules" | cut -f1) MiB of it packages)"
inspected=$(build inspect --type image merchant-gateway)
expect 'it is not run by root' '"User": "1000:1000"' "$inspected"
expect 'it says what it is' '"org.opencontainers.image.revision": "check"' "$inspected"
expect 'it has a health check' '"Healthcheck"' "$inspected"
expect 'it works where it may write' '"WorkingDir": "/var/lib/merchant-gateway"' "$inspected"
[ -z "$(find "$root/app" \( -name '*.test.*' -o -name typescript -o -name tap \) -maxdepth 2)" ] && ok 'nothing of development is in it' || not_ok 'something of development is in it'
[ -z "$(find "$root/app" -user 1000 -o -perm -o+w ! -type l)" ] && ok 'the process cannot change its own code' || not_ok 'the process could change its own code'

sbom=$root/app/sbom.cdx.json
expect 'its SBOM is one of CycloneDX, of this product' 'CycloneDX merchant-gateway' "$(node -p 'const { bomFormat, metadata } = JSON.parse(fs.readFileSync(process.argv[1])); `${bomFormat} ${metadata.component.name}`' "$sbom")"
listed=$(node -e 'for (const { name, version } of JSON.parse(fs.readFileSync(process.argv[1])).components) console.log(`${name}@${version}`)' "$sbom" | sort)
installed=$(cd "$root/app" && node -e '
  for (const file of fs.readdirSync("node_modules", { recursive: true })) {
    if (!/(^|\/node_modules\/)(@[^/]+\/)?[^/@.][^/]*\/package\.json$/.test(file)) continue;
    const { name, version } = JSON.parse(fs.readFileSync(`node_modules/${file}`));
    console.log(`${name}@${version}`);
  }' | sort -u)
[ "$listed" = "$installed" ] && ok "which lists the $(wc -l <<<"$installed") packages that are in it" || not_ok "the SBOM and the packages differ: $(diff <(echo "$listed") <(echo "$installed"))"

echo '== as a pod sees it: read-only root, uid 1000, no capabilities, no new privileges, 512 MiB of data'
etc=$work/etc
mkdir -p "$etc/config"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost -keyout "$etc/tls.key" -out "$etc/tls.crt" 2>/dev/null
echo 203.0.113.7 >"$etc/tor-exits.txt"
openssl rand -hex 32 >"$etc/token"
chmod 0444 "$etc"/*.*
key=svc_live_0123456789abcdefghijABCDEFGHIJ0123456789abcdefghi
id=$(printf %s "$key" | sha256sum | cut -d' ' -f1)
cat >"$etc/records.json" <<JSON
{"mg:meta":{"version":1,"generation":"01TEST","projectedAt":"2026-01-01T00:00:00.000Z"},
"mg:key:$id":{"keyId":"key_1","merchantId":"m_1","environment":"live","status":"ACTIVE","permissions":["*"],"expiresAt":null,"revision":1},
"mg:merchant:m_1":{"merchantId":"m_1","name":"Shop","status":"ACTIVE","goLive":true,"ipAllowlist":null,"originAllowlist":null,"revision":1}}
JSON
port() { node -e 'const s = require("node:net").createServer().listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close(); })'; }
https=$(port)
management=$(port)
config() { # writes a configuration, and appends the given lines
  cat >"$etc/config/gateway.yaml" <<YAML
listen:
  https: { host: 127.0.0.1, port: $https, certFile: /etc/merchant-gateway/tls.crt, keyFile: /etc/merchant-gateway/tls.key }
  http: null
  management: { host: 127.0.0.1, port: $management }
torExits: { sources: [/etc/merchant-gateway/tor-exits.txt], allowReserved: true, snapshotFile: ${snapshot:-var/tor-exits.json} }
upstreams: { none: { url: 'http://127.0.0.1:9' } }
routes: [{ path: /payouts, upstream: none, resource: payouts }]
YAML
  printf '%s\n' "$@" >>"$etc/config/gateway.yaml"
}
inside() { # runs a command in the image, as a pod does
  exec unshare --mount --propagation private bash -c '
    root=$1 etc=$2; shift 2
    mount --bind "$root" "$root"
    mkdir -p "$root/etc/merchant-gateway"
    mount --bind "$etc" "$root/etc/merchant-gateway"
    mount -o remount,bind,ro "$root/etc/merchant-gateway"
    mount --bind /proc "$root/proc"
    mount --bind /dev "$root/dev"
    for place in var/lib/merchant-gateway/var tmp; do mount -t tmpfs -o mode=1777 none "$root/$place"; done
    mount -o remount,bind,ro "$root"
    exec chroot "$root" /usr/bin/env -i --chdir=/var/lib/merchant-gateway PATH=/usr/bin NODE_ENV=production prlimit --data=536870912 \
      setpriv --reuid 1000 --regid 1000 --clear-groups --bounding-set -all --inh-caps -all --no-new-privs "$@"
  ' bash "$root" "$etc" "$@"
}
entry=(node /app/dist/cli/main.js)
file=/etc/merchant-gateway/config/gateway.yaml
refuses() { # checks that a part does not start; arguments: what is missing, exit status, message, part
  local said status=0
  said=$(timeout 60 bash -c "$(declare -f inside); root=$root etc=$etc; inside \"\$@\"" bash "${entry[@]}" "${4:-gateway}" --config "$file" 2>&1) || status=$?
  [ "$status" = "$2" ] || not_ok "$1: the exit status is $status, not $2"
  expect "$1 ($(grep -E "$3" <<<"$said" | head -n 1 | cut -c1-150))" "$3" "$said"
}

start_gateway() { # starts a gateway, and waits until it has warmed up; `ready` has the last response of /readyz
  inside "${entry[@]}" gateway --config "$file" >"$work/log" 2>&1 &
  runner=$!
  for _ in $(seq 300); do
    ready=$(curl -s "http://127.0.0.1:$management/readyz" || true)
    [[ $ready == *'"ready"'* ]] && break
    sleep 0.1
  done
}
records='keyStore: { kind: memory, memory: { recordsFile: /etc/merchant-gateway/records.json } }'
config "$records"
start_gateway
expect 'it is ready' '"ready"' "$ready"
expect 'it answers over TLS' '502' "$(curl -sk -o /dev/null -w '%{http_code}' -H "x-api-key: $key" "https://127.0.0.1:$https/v1/payouts")"
expect 'and without a key as it must' 'API Key is required' "$(curl -sk "https://127.0.0.1:$https/v1/payouts")"
status=$(cat "/proc/$runner/status") # in `inside`, each program replaces itself with the next, and the last one with Node
expect 'the process is Node' 'Name:.(node|MainThread)' "$status"
expect 'its user is 1000' 'Uid:.1000.1000.1000.1000' "$status"
expect 'it has no capability, and can get none' 'CapBnd:.0000000000000000' "$status"
expect 'nor privileges by what it runs' 'NoNewPrivs:.1' "$status"
expect 'its data are limited' 'Max data size +536870912' "$(cat "/proc/$runner/limits")"
echo "it takes $(($(sed -nE 's/VmRSS:\s+([0-9]+).*/\1/p' <<<"$status") / 1024)) MiB of memory"
kept=/proc/$runner/root/var/lib/merchant-gateway/var/tor-exits.json # written a moment after the gateway has begun to use the list
for _ in $(seq 100); do [ -s "$kept" ] && break; sleep 0.1; done
[ -s "$kept" ] && ok 'it keeps the Tor list where it may write' || not_ok "it keeps no Tor list: $(ls -la "${kept%/*}" 2>&1) $(cat "$work/log")"
kill -TERM "$runner"
if wait "$runner"; then ok 'SIGTERM ends it with status 0'; else not_ok "SIGTERM ends it with status $?"; fi
expect 'after a drain' 'drained' "$(cat "$work/log")"
expect 'it cannot write elsewhere' 'EROFS|read-only' "$(inside node -e 'fs.writeFileSync("/app/x", "")' 2>&1 || true)"

echo '== what it says when something is missing'
snapshot=/app/tor-exits.json config "$records"
start_gateway
expect 'without a place for the Tor list it runs' '"ready"' "$ready"
kill -TERM "$runner" && wait "$runner" || not_ok "SIGTERM ends it with status $?"
expect 'and says that it cannot keep it' 'snapshot of the Tor exit list cannot be written' "$(cat "$work/log")"
config 'keyStore: { kind: memory, memory: { recordsFile: /etc/merchant-gateway/missing.json } }'
refuses 'the records' 1 'missing\.json cannot be read: there is no such file'
config 'keyStore: { kind: memory }'
refuses 'the name of the records' 2 'keyStore\.memory\.recordsFile: expected'
config "$records" 'keys: { pepperFile: /etc/merchant-gateway/pepper }'
refuses 'the pepper' 1 'pepper cannot be read: there is no such file'
config "$records"
chmod 0600 "$etc/tls.key"
refuses 'the right to read the private key' 1 'private key .* cannot be read: permission denied'
chmod 0444 "$etc/tls.key"
config 'accessLog: { destination: /var/log/access.log }' "$records"
refuses 'a place for the access log' 1 'access log .* cannot be opened'
config 'registry: { tokenFile: /etc/merchant-gateway/absent }' 'keyStore: { redis: { url: "redis://127.0.0.1:9" } }'
refuses 'the token of administrators' 1 'token file .* cannot be read: there is no such file' registry
chmod 0444 "$etc/token"
config "registry: { tokenFile: /etc/merchant-gateway/token, database: { url: 'sqlite:/var/lib/merchant-gateway/data/registry.db' } }"
refuses 'a volume for the registry' 1 'database|directory|read-only|cannot' registry
rm "$etc/config/gateway.yaml"
refuses 'the configuration' 2 'no such file'

echo
[ "$failed" = 0 ] && echo 'the image is as it must be' || echo "$failed failed"
[ "$failed" = 0 ]
