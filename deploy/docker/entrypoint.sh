#!/bin/sh
# Prepare what the command needs, then become the command.
#
# ROTA_ADMIN_TOKEN_FILE, ROTA_WORKER_TOKEN_FILE: before `rota up`, the tokens whose secrets these
# files have are stored. A coordinator that listens beyond loopback does not start without one.
# ROTA_TOKEN_FILE: the file with the token of a worker or of another client.
# PGPASSWORD_FILE: the file with the password of the database.
set -eu

if [ -n "${PGPASSWORD_FILE:-}" ]; then
  PGPASSWORD=$(cat "$PGPASSWORD_FILE")
  export PGPASSWORD
fi
if [ "${1:-}" = rota ] && [ "${2:-}" = up ]; then
  if [ -n "${ROTA_ADMIN_TOKEN_FILE:-}" ]; then
    rota token create --scope admin --name admin \
      --secret-file "$ROTA_ADMIN_TOKEN_FILE" --store "$ROTA_STORE" >/dev/null
  fi
  if [ -n "${ROTA_WORKER_TOKEN_FILE:-}" ]; then
    rota token create --scope worker --scope submit --name worker \
      --secret-file "$ROTA_WORKER_TOKEN_FILE" --store "$ROTA_STORE" >/dev/null
  fi
fi
if [ -n "${ROTA_TOKEN_FILE:-}" ]; then
  ROTA_TOKEN=$(cat "$ROTA_TOKEN_FILE")
  export ROTA_TOKEN
fi
exec "$@"
