#!/usr/bin/env bash
# A payment under a stored policy, with nothing but redis-cli: ENTER before the call, EXIT after it.
# Usage: payments.sh <port>. The first two attempts fail; the third succeeds.
set -euo pipefail

port=${1:?port}
policy='resil:policy:{payments-bash}'
cli() { redis-cli -p "$port" --raw "$@"; }

cli RES.POLICY SET "$policy" '{"timeout":{"attempt":"2s","total":"10s"},"breaker":{"consecutiveFailures":5},
  "rateLimit":{"limit":100,"period":"1m"},"sharedBulkhead":{"maxConcurrentCalls":10},
  "retry":{"maxAttempts":3,"initialBackoff":"10ms","jitter":"none"}}' ACTOR example > /dev/null

charge() { [ "$1" -ge 3 ]; } # the payment provider: it works at the third attempt

owner="bash-$$"
ticket=()
while :; do
  mapfile -t entered < <(cli RES.GUARD ENTER "$policy" "$owner" ${ticket[@]+"${ticket[@]}"})
  if [ "${entered[0]}" != ADMITTED ]; then
    echo "refused by ${entered[1]}: ${entered[3]}" >&2
    exit 1
  fi
  attempt=${entered[2]}
  if charge "$attempt"; then outcome=OK; else outcome=FAIL; fi
  mapfile -t exited < <(cli RES.GUARD EXIT "$policy" "${entered[1]}" "$outcome")
  case ${exited[0]} in
    DONE) echo "paid at attempt $attempt"; exit 0 ;;
    RETRY) sleep "$(printf '%d.%03d' $((exited[1] / 1000)) $((exited[1] % 1000)))"; ticket=(TICKET "${entered[1]}") ;;
    STOP) echo "given up after ${exited[2]} attempts: ${exited[1]}" >&2; exit 1 ;;
    *) echo "${exited[*]}" >&2; exit 1 ;;
  esac
done
