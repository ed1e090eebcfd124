#!/usr/bin/env bash
# The router beside other routers, one table with bars, PASS or FAIL: router_vs_peers.sh PEERS_FOLDER [--only NAME,…] [--help]
exec python3 "$(dirname "$0")/router_vs_peers.py" "$@"
