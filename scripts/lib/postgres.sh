# shellcheck shell=bash
# A PostgreSQL cluster of our own for one test run: in memory, on a Unix socket, without fsync. Sourced, never run.
#
#   postgres_start   starts it and exports FORMATION_TEST_PG, its address
#   postgres_stop    stops it by process id and removes it
#
# `synchronous_commit` stays on: `serve` refuses a server that has it off.

postgres_folder=

# Runs a PostgreSQL program as a user who may: it refuses root.
postgres_as_user() {
  if [ "$(id -u)" = 0 ]; then
    local user=nobody
    if id postgres >/dev/null 2>&1; then user=postgres; fi
    runuser -u "$user" -- "$@"
  else
    "$@"
  fi
}

postgres_start() {
  local program base
  for program in initdb pg_ctl postgres; do
    if ! command -v "$program" >/dev/null 2>&1; then
      printf '\nerror: `%s` is not in PATH, so the tests on PostgreSQL cannot run, and they are half of the tests\n' "$program" >&2
      printf '\nhint: install PostgreSQL 15 or newer and put its programs into PATH (Debian keeps them in /usr/lib/postgresql/*/bin)\n' >&2
      return 1
    fi
  done
  base=${TMPDIR:-/tmp}
  if [ -d /dev/shm ] && [ -w /dev/shm ]; then base=/dev/shm; fi
  postgres_folder=$(mktemp -d "$base/formation-pg.XXXXXX")
  if [ "$(id -u)" = 0 ]; then
    if id postgres >/dev/null 2>&1; then chown postgres "$postgres_folder"; else chown nobody "$postgres_folder"; fi
  fi
  # From the folder itself: the user it runs as may not enter the one we stand in.
  (
    cd "$postgres_folder"
    postgres_as_user initdb -D "$postgres_folder/data" -U postgres -A trust -E UTF8 --locale=C --no-sync >"$postgres_folder.log" 2>&1 &&
      postgres_as_user pg_ctl -D "$postgres_folder/data" -l "$postgres_folder/log" -s -w -t 60 \
        -o "-c fsync=off -c full_page_writes=off -c max_connections=400 -c listen_addresses='' -c unix_socket_directories='$postgres_folder'" \
        start >>"$postgres_folder.log" 2>&1
  ) || {
    printf '\nerror: the PostgreSQL cluster for the tests did not start:\n' >&2
    cat "$postgres_folder.log" "$postgres_folder/log" >&2 2>/dev/null || true
    postgres_stop
    return 1
  }
  export FORMATION_TEST_PG="postgres://postgres@localhost/postgres?host=$postgres_folder"
}

postgres_stop() {
  if [ -z "$postgres_folder" ]; then return; fi
  local pid wait
  pid=$(head -n 1 "$postgres_folder/data/postmaster.pid" 2>/dev/null || true)
  if [ -n "$pid" ]; then
    kill -INT "$pid" 2>/dev/null || true
    for wait in $(seq 100); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
  fi
  rm -rf -- "$postgres_folder" "$postgres_folder.log"
  postgres_folder=
  unset FORMATION_TEST_PG
}
